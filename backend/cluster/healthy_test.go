package cluster_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func (p *proxies) Forget() { p.each(func(x *redistest.Proxy) { x.Forget() }) }

// budget is the default where figures are asked for. Else the tests share two busy
// cores with others, and the budget is not their subject.
func budget() time.Duration {
	if redistest.Long() {
		return 0
	}
	return 400 * time.Millisecond
}

// healthy returns the tests on a cluster whose nodes lie behind proxies.
func healthy(t *testing.T) *faulttest.Healthy {
	c := redistest.SharedCluster(t)
	p := &proxies{t: t}
	for _, addr := range c.Addrs() {
		p.proxy(addr)
	}
	return &faulttest.Healthy{
		Network: p,
		Open: func(pool faulttest.Pool) backend.Store {
			o := p.options(c)
			o.PoolSize, o.MaxActiveConns = pool.Size, pool.MaxActive
			s := cluster.New(with{o}, &cluster.Options{Budget: cmp.Or(pool.Budget, budget())})
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	}
}

func TestDeadConnections(t *testing.T) {
	for _, idle := range []int{200, 20}[:redistest.Steps(1, 2)] {
		h := healthy(t)
		h.DeadConnections(t, idle)
	}
}

func TestLostReplies(t *testing.T) {
	h := healthy(t)
	h.LostReplies(t, 1, 128, time.Second)
	h.LostReplies(t, 16, 8, time.Second)
}

func TestFewConnections(t *testing.T) {
	h := healthy(t)
	h.FewConnections(t)
}

// TestImpatientCallers holds medians and keys to their bars at length alone: they
// are ratios of speed. The goodput is in docs/experiments.md. That calls whose
// callers left are not sent is TestTake of backend/internal/batch.
func TestImpatientCallers(t *testing.T) {
	c := redistest.SharedCluster(t)
	h := &faulttest.Healthy{Open: func(p faulttest.Pool) backend.Store {
		s := cluster.New(with{&redis.ClusterOptions{Addrs: c.Addrs()}}, &cluster.Options{Budget: cmp.Or(p.Budget, budget())})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}}
	h.Sent = func() (read, wrote int64) {
		for i := range 3 {
			s := c.Primary(i * slot.Count / 3).CommandStats(t)
			read, wrote = read+s["hget"].Calls, wrote+s["hset"].Calls
		}
		return read, wrote
	}
	if !redistest.Long() {
		h.ImpatientCallers(t, 1000, 1, time.Second/2)
		return
	}
	_, median, left := h.ImpatientCallers(t, 1000, 3, 3*time.Second)
	require.LessOrEqual(t, median, 1.5)
	require.LessOrEqual(t, left, 0.01)
	h.ImpatientCallers(t, 3000, 1, 3*time.Second)
}

func TestLongLink(t *testing.T) {
	h := healthy(t)
	if !redistest.Long() {
		h.LongLink(t, 1200, time.Second)
		return
	}
	require.GreaterOrEqual(t, h.LongLink(t, 2000, 3*time.Second), 40_000.0)
}
