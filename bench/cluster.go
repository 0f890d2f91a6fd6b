package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
)

const (
	cluster   = "cluster"
	primaries = 3
	slots     = 16384
)

// clusterWorkloads are those of 512 callers in one process. Smaller numbers of
// callers and fleets are measured on one server only: the batching is the same
// code, per node.
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

// onCluster has no rueidis: its pipelines per node are the same as on one
// server.
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
	// The nodes meet by gossip, which takes a while.
	for end := time.Now().Add(30 * time.Second); !agreed(b.primaries); {
		if time.Now().After(end) {
			b.tb.Fatal("the cluster did not come together")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return b.cluster
}

// meet configures the i-th node: its epoch, its third of the slots, and the
// addresses of the nodes before it. Epochs must differ, or the nodes negotiate
// them first.
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

// agreed reports whether every node serves, has all slots assigned and has met
// all others. Until then a node may answer CLUSTERDOWN.
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
