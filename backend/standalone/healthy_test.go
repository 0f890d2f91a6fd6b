package standalone_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/faulttest"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// budget is the default where figures are asked for. Else the tests share two busy
// cores with others, and the budget is not their subject.
func budget() time.Duration {
	if redistest.Long() {
		return 0
	}
	return 400 * time.Millisecond
}

// healthy returns the tests on a server behind a proxy, with clients as a user
// makes them: by go-redis' defaults.
func healthy(t *testing.T) (*faulttest.Healthy, *redistest.Server) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	return through(t, proxy, func(p faulttest.Pool) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: p.Size, MaxActiveConns: p.MaxActive})
	}), server
}

func through(t *testing.T, proxy *redistest.Proxy, dial func(faulttest.Pool) *redis.Client) *faulttest.Healthy {
	var client *redis.Client
	connections := func(n int) (all []*redis.Conn) {
		for range n {
			c := client.Conn()
			require.NoError(t, c.Ping(context.Background()).Err())
			all = append(all, c)
		}
		return all
	}
	return &faulttest.Healthy{
		Network: proxy,
		Open: func(p faulttest.Pool) backend.Store {
			c := dial(p)
			client = c
			t.Cleanup(func() { _ = c.Close() })
			return standalone.New(c, &standalone.Options{Budget: cmp.Or(p.Budget, budget())})
		},
		Idle: func(n int) {
			for _, c := range connections(n) {
				require.NoError(t, c.Close())
			}
		},
		Hold: func(n int) {
			for _, c := range connections(n) {
				t.Cleanup(func() { _ = c.Close() })
			}
		},
	}
}

func TestDeadConnections(t *testing.T) {
	for _, idle := range []int{200, 20}[:redistest.Steps(1, 2)] {
		h, _ := healthy(t)
		h.DeadConnections(t, idle)
	}
}

// TestDeadConnectionsBehindSentinel: the primary that Sentinel names lies behind
// the proxy.
func TestDeadConnectionsBehindSentinel(t *testing.T) {
	server := redistest.Start(t)
	sentinel := server.Sentinel(t, "main")
	proxy := redistest.NewProxy(t, server.Addr())
	h := through(t, proxy, func(p faulttest.Pool) *redis.Client {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{sentinel}, PoolSize: p.Size,
			Dialer: proxy.Dialer(server.Addr())})
	})
	h.DeadConnections(t, 20)
}

func TestLostReplies(t *testing.T) {
	h, _ := healthy(t)
	h.LostReplies(t, 1, 128, time.Second)
	h.LostReplies(t, 16, 8, time.Second)
}

func TestFewConnections(t *testing.T) {
	h, _ := healthy(t)
	h.FewConnections(t)
}

// TestImpatientCallers holds goodput, medians and keys to their bars at length
// alone: they are ratios of speed. That calls whose callers left are not sent is
// TestTake of backend/internal/batch.
func TestImpatientCallers(t *testing.T) {
	server := redistest.Start(t)
	h := through(t, nil, func(faulttest.Pool) *redis.Client { return redis.NewClient(&redis.Options{Addr: server.Addr()}) })
	sent := func() (read, wrote int64) {
		s := server.CommandStats(t)
		return s["hget"].Calls, s["hset"].Calls
	}
	if !redistest.Long() {
		h.ImpatientCallers(t, 1000, 1, time.Second/2, sent)
		return
	}
	got := h.ImpatientCallers(t, 1000, 3, 3*time.Second, sent)
	require.GreaterOrEqual(t, got.Goodput, 0.7)
	require.LessOrEqual(t, got.Median, 1.5)
	require.LessOrEqual(t, got.Left, 0.01)
	h.ImpatientCallers(t, 3000, 1, 3*time.Second, sent)
}

func TestCancellingCallers(t *testing.T) {
	h, _ := healthy(t)
	h.CancellingCallers(t, 2000, time.Second)
}

func TestLongLink(t *testing.T) {
	h, _ := healthy(t)
	if !redistest.Long() {
		h.LongLink(t, 1200, time.Second)
		return
	}
	for _, callers := range []int{1200, 1600, 2000} {
		require.GreaterOrEqual(t, h.LongLink(t, callers, 3*time.Second), 40_000*float64(callers)/2000)
	}
}

func TestCheapBesideDear(t *testing.T) {
	h, _ := healthy(t)
	if !redistest.Long() {
		h.CheapBesideDear(t, 16, time.Second)
		return
	}
	require.LessOrEqual(t, h.CheapBesideDear(t, 16, 3*time.Second), 2*time.Millisecond)
	h.CheapBesideDear(t, 256, 3*time.Second)
}

// TestDenyCacheOverLink: the cache delays calls that pass by at most a third of
// what they take without it.
func TestDenyCacheOverLink(t *testing.T) {
	h, _ := healthy(t)
	if !redistest.Long() {
		require.LessOrEqual(t, h.DenyCacheOverLink(t, 5*time.Millisecond, 3, time.Second/2), 1.33)
		return
	}
	for _, link := range []time.Duration{1, 5, 20, 40} {
		require.LessOrEqual(t, h.DenyCacheOverLink(t, link*time.Millisecond, 3, 3*time.Second), 1.33)
	}
}
