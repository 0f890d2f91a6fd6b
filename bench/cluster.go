package main

import (
	"fmt"
	"net"
	"strings"
	"time"

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

func clusterWorkloads() []workload {
	var all []workload
	for _, w := range []struct {
		keys  string
		least float64
	}{{"hot", 15}, {"zipf", 3.5}, {"uniform", 2.4}} {
		all = append(all, workload{
			place: cluster, name: "cluster/" + w.keys + "/512", subjects: onCluster, keys: w.keys, limit: peers.Roomy,
			callers: 512, policies: 1, fill: 64, turn: closed,
			metrics: []report.Metric{metric(decisions, beats(w.least, redisRate))},
		})
	}
	return all
}

func onCluster(b *bench) []peers.Maker {
	return []peers.Maker{peers.HeadgateCluster(b.nodes()), peers.RedisRateCluster(b.nodes())}
}

// nodes are the addresses of a cluster of three primaries. redistest's has a
// replica for each, and what those take of two cores is no part of a decision.
func (b *bench) nodes() []string {
	if b.cluster != nil {
		return b.cluster
	}
	for range primaries {
		s := redistest.Start(b.tb, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		b.cluster = append(b.cluster, s.Addr())
		b.primaries = append(b.primaries, s.Client(b.tb))
	}
	for i, admin := range b.primaries {
		if err := b.meet(i, admin); err != nil {
			b.tb.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); !agreed(b.primaries); {
		if time.Now().After(end) {
			b.tb.Fatal("the cluster did not come together")
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

// agreed is whether every node serves, with all slots and all others in sight.
func agreed(admins []*redis.Client) bool {
	for _, admin := range admins {
		info := admin.ClusterInfo(ctx).Val()
		known := fmt.Sprintf("cluster_known_nodes:%d\r", primaries)
		for _, line := range []string{"cluster_state:ok", "cluster_slots_ok:16384", known} {
			if !strings.Contains(info, line) {
				return false
			}
		}
	}
	return true
}
