package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

const (
	cluster   = "cluster"
	primaries = 3
	slots     = 16384
)

func clusterTrials() []trial {
	on := func(name, about string, keys func(*bench) load.Keys, least float64) trial {
		return trial{
			place: cluster, name: "cluster/" + name + "/512", about: about + " 512 callers, three primaries.",
			metrics: []report.Metric{drawn(cluster, metric(decisions, beats(least, redisRate)))},
			makers:  onCluster, keys: keys, fill: 64, turn: apart,
		}
	}
	return []trial{
		on("hot", "One key.", hot, 18),
		on("zipf", "100,000 keys, the k-th called in proportion to 1/k^1.1.", zipf, 3.5),
		on("uniform", "100,000 keys, each as likely.", uniform, 2.4),
	}
}

func onCluster(b *bench) []peers.Maker {
	return []peers.Maker{peers.HeadgateCluster(b.nodes()), peers.RedisRateCluster(b.nodes())}
}

// apart measures what needs nothing of the one server.
func apart(b *bench, g *guest) (figures, error) {
	s := load.Closed{Callers: b.crowd, For: b.length}.Run(g.keys, g.Allow)
	failed, err := passing(&s)
	return figures{map[string]float64{decisions: s.Rate()}, failed}, err
}

// nodes are the addresses of a cluster of three primaries. redistest's has a
// replica for each, and what those take of two cores is no part of a decision.
func (b *bench) nodes() []string {
	if b.cluster != nil {
		return b.cluster
	}
	var admins []*redis.Client
	for range primaries {
		s := redistest.Start(b.stage, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		b.cluster = append(b.cluster, s.Addr())
		admins = append(admins, s.Client(b.stage))
	}
	for i, admin := range admins {
		if err := b.meet(i, admin); err != nil {
			b.stage.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); !agreed(admins); {
		if time.Now().After(end) {
			b.stage.Fatal("the cluster did not come together")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return b.cluster
}

// meet gives a node its epoch and its third of the slots, and the addresses of
// those before it.
func (b *bench) meet(i int, admin *redis.Client) error {
	pipe := admin.Pipeline()
	pipe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	pipe.ClusterAddSlotsRange(ctx, i*slots/primaries, (i+1)*slots/primaries-1)
	for _, addr := range b.cluster[:i] {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		pipe.ClusterMeet(ctx, host, port)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// agreed: every node serves, and knows all slots and all others.
func agreed(admins []*redis.Client) bool {
	for _, admin := range admins {
		info := admin.ClusterInfo(ctx).Val()
		known := fmt.Sprintf("cluster_known_nodes:%d\r", primaries)
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, known) || !strings.Contains(info, "cluster_slots_ok:16384") {
			return false
		}
	}
	return true
}
