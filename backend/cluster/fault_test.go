package cluster_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Set, Hit, Seen and Forget make proxies a faulttest.Network.
func (p *proxies) Set(f redistest.Fault) {
	p.fault.Store(&f)
	p.each(func(x *redistest.Proxy) { x.Set(f) })
}

func (p *proxies) Hit() int { return p.hit() }

func (p *proxies) Seen() (n int) {
	p.each(func(x *redistest.Proxy) { n += x.Seen() })
	return n
}

func TestAtMostOnce(t *testing.T) { atMostOnce(t, nil) }

func TestAtMostOnceAlone(t *testing.T) { atMostOnce(t, &cluster.Options{DisableBatching: true}) }

func atMostOnce(t *testing.T, o *cluster.Options) {
	c := redistest.SharedCluster(t)
	p := &proxies{t: t}
	through := cluster.New(with{p.options(c)}, o)
	defer through.Close()
	direct := open(c.Addrs(), patient)
	defer direct.Close()
	faulttest.AtMostOnce(t, []*headgate.Limiter{faulttest.Limiter(t, through, faulttest.Wide)}, faulttest.Limiter(t, direct, faulttest.Wide), p, cluster.DefaultBudget)
	c.NoImmortals(t)
}

// TestLostLeases loses replies of reservations and of what follows them.
func TestLostLeases(t *testing.T) {
	c := redistest.SharedCluster(t)
	p := &proxies{t: t}
	through := cluster.New(with{p.options(c)}, nil)
	defer through.Close()
	direct := open(c.Addrs(), patient)
	defer direct.Close()
	warm := faulttest.Limiter(t, through, faulttest.Wide)
	for i := range 30 { // every node has its proxy
		require.Eventually(t, func() bool { return decided(t, warm, fmt.Sprint("warm", i)) }, 20*time.Second, time.Millisecond)
	}
	faulttest.LostLeases(t, through, direct, p, cluster.DefaultBudget)
	t.Run("stopped", func(t *testing.T) {
		faulttest.LostReservations(t, through, direct, func() func() { return faulttest.StopBriefly(c.Primary(0)) })
	})
	c.NoImmortals(t)
}

func addrs(c *redistest.Cluster) []string {
	if c != nil {
		return c.Addrs()
	}
	return strings.Split(os.Getenv("ADDRS"), ",")
}

func env(c *redistest.Cluster) string { return "ADDRS=" + strings.Join(c.Addrs(), ",") }

func TestRaces(t *testing.T) {
	redistest.Plain(t)
	races(t, patient)
}

func TestRacesAlone(t *testing.T) {
	redistest.Plain(t)
	races(t, patientAlone)
}

func races(t *testing.T, o *cluster.Options) {
	var c *redistest.Cluster
	faulttest.Races(t, func() backend.Store { return open(addrs(c), o) }, func() string {
		c = redistest.SharedCluster(t)
		return env(c)
	})
	if c != nil {
		c.NoImmortals(t)
	}
}

// TestSlots in short form has a few processes for three seconds.
func TestSlots(t *testing.T) {
	redistest.Plain(t)
	var c *redistest.Cluster
	processes := redistest.Steps(8, 64)
	faulttest.Slots(t, processes, processes*5/16, func() backend.Store { return open(addrs(c), patient) }, func() string {
		c = redistest.SharedCluster(t)
		return env(c)
	})
}

func TestScriptFlush(t *testing.T) {
	redistest.Plain(t)
	scriptFlush(t, patient)
}

func TestScriptFlushAlone(t *testing.T) {
	redistest.Plain(t)
	scriptFlush(t, patientAlone)
}

func scriptFlush(t *testing.T, o *cluster.Options) {
	var c *redistest.Cluster
	open := func() backend.Store {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(c)})
		t.Cleanup(func() { _ = client.Close() })
		return cluster.New(client, o)
	}
	faulttest.Flush(t, open, func() faulttest.Servers {
		c = redistest.SharedCluster(t)
		client := c.Client(t)
		return faulttest.Servers{
			Env: env(c), Nodes: 3,
			Flush: func() error {
				return client.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error {
					return n.ScriptFlush(ctx).Err()
				})
			},
			Stats: func() map[string]redistest.Stat { return c.CommandStats(t) },
		}
	})
}

// TestBatches asks keys of one node only.
func TestBatches(t *testing.T) {
	c := redistest.SharedCluster(t)
	p := &proxies{t: t}
	names := func() func(int) string {
		var known []string
		return func(i int) string {
			for n := len(known); len(known) <= i; n++ {
				if k := fmt.Sprint("key", n); slot.Of(k) < slot.Count/3-1 {
					known = append(known, k)
				}
			}
			return known[i]
		}
	}()
	_ = names(3000) // found before they are asked for by many
	(&faulttest.Batches{
		Through: func(ps ...headgate.Policy) *headgate.Limiter {
			s := cluster.New(with{p.options(c)}, &cluster.Options{Budget: faulttest.Budget})
			t.Cleanup(func() { _ = s.Close() })
			return faulttest.Limiter(t, s, ps...)
		},
		Direct: func(ps ...headgate.Policy) *headgate.Limiter {
			s := open(c.Addrs(), patient)
			t.Cleanup(func() { _ = s.Close() })
			return faulttest.Limiter(t, s, ps...)
		},
		Network: p,
		Name:    names,
	}).Run(t)
}
