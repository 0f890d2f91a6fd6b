package cluster_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLoneFarCaller is that of backend/standalone on a cluster, with keys of all nodes.
func TestLoneFarCaller(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	o, trips, d := &cluster.Options{Budget: 500 * ms}, []time.Duration{200 * ms}, 3*time.Second
	if redistest.Long() {
		o, trips, d = nil, []time.Duration{5 * ms, 25 * ms, 40 * ms, 60 * ms, 80 * ms}, time.Minute
	}
	for _, trip := range trips {
		for _, secure := range []bool{true, false} {
			t.Run(fmt.Sprint(map[bool]string{true: "TLS ", false: "TCP "}[secure], trip), func(t *testing.T) {
				t.Parallel()
				relays, s := farCluster(t, secure, trip, o)
				got, most := faulttest.NewLone(t, s), 0
				got.Run(d, 20*ms)
				for _, r := range relays {
					most = max(most, r.Dialled())
				}
				faulttest.RequireFar(t, got, trip, most, 2)
			})
		}
	}
}

// farCluster returns a store on a cluster whose primaries are behind relays, and announce
// them.
func farCluster(t *testing.T, secure bool, trip time.Duration, o *cluster.Options) (relays []*redistest.Relay, s backend.Store) {
	args, trusting := redistest.Certificate(t)
	c := redistest.StartCluster(t, args...)
	for _, replica := range c.Nodes()[3:] { // which would come through the relays too
		replica.Kill()
	}
	opts := &redis.ClusterOptions{}
	for _, n := range c.Nodes()[:3] {
		addr := n.Addr()
		if secure {
			addr, opts.TLSConfig = n.ListenTLS(t), trusting
		}
		r := redistest.NewRelay(t, addr, trip)
		relays = append(relays, r)
		_, port, _ := net.SplitHostPort(r.Addr())
		require.NoError(t, n.Client(t).ConfigSet(context.Background(), "cluster-announce-port", port).Err())
		opts.Addrs = append(opts.Addrs, r.Addr())
	}
	require.Eventually(t, func() bool { // until each node has the others' ports
		for _, n := range c.Nodes()[:3] {
			//lint:ignore SA1019 it is what the store reads
			for _, slots := range n.Client(t).ClusterSlots(context.Background()).Val() {
				if slots.Nodes[0].Addr != relays[0].Addr() && slots.Nodes[0].Addr != relays[1].Addr() && slots.Nodes[0].Addr != relays[2].Addr() {
					return false
				}
			}
		}
		return true
	}, 20*time.Second, 50*time.Millisecond)
	opts.Addrs = opts.Addrs[:1]
	require.Zero(t, relays[0].Dialled())
	store := cluster.New(with{opts}, o)
	t.Cleanup(func() { _ = store.Close() })
	return relays, store
}
