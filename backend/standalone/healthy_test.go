package standalone_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
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
			return standalone.New(c, &standalone.Options{Budget: cmp.Or(p.Budget, budget()), DisableBatching: p.DisableBatching})
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
	sentinel := server.Sentinel(t, "main").Addr()
	proxy := redistest.NewProxy(t, server.Addr())
	h := through(t, proxy, func(p faulttest.Pool) *redis.Client {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{sentinel}, PoolSize: p.Size,
			Dialer: past(server.Addr(), proxy.Addr())})
	})
	h.DeadConnections(t, 20)
}

// past returns a dialer that connects to the proxy instead of the target. Sentinel
// names the target's own address.
func past(target, proxy string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == target {
			addr = proxy
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
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
	h.Sent = func() (read, wrote int64) {
		s := server.CommandStats(t)
		return s["hget"].Calls, s["hset"].Calls
	}
	if !redistest.Long() {
		h.ImpatientCallers(t, 1000, 1, time.Second/2)
		return
	}
	goodput, median, left := h.ImpatientCallers(t, 1000, 3, 3*time.Second)
	require.GreaterOrEqual(t, goodput, 0.7)
	require.LessOrEqual(t, median, 1.5)
	require.LessOrEqual(t, left, 0.01)
	h.ImpatientCallers(t, 3000, 1, 3*time.Second)
}

// TestCancellingCallers cancels calls on spread keys after up to 2 ms: callers
// that left free their place at once.
func TestCancellingCallers(t *testing.T) {
	h, _ := healthy(t)
	var seen faulttest.Observed
	l, err := seen.Limiter(t, h.Open(faulttest.Pool{}), faulttest.Bucket).WithShards(64)
	require.NoError(t, err)
	faulttest.Loop(2000, time.Second, time.Millisecond, func(ctx context.Context, c, i int) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration((c+i)%2000)*time.Microsecond, cancel)
		defer timer.Stop()
		defer cancel()
		_, _ = l.Allow(ctx, fmt.Sprint("k", i%10))
	})
	require.Eventually(t, func() bool {
		d, err := l.Allow(context.Background(), "after")
		return err == nil && d.Source == headgate.FromStore
	}, 2*time.Second, 10*time.Millisecond)
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

// TestUnbatched has several times as many callers as connections. At length, they have at
// least 0.7 of the decisions of as many callers as connections, who wait for none. A link
// of 20 ms takes more than 20 ms, by what its machine is late.
func TestUnbatched(t *testing.T) {
	h, _ := healthy(t)
	if !redistest.Long() {
		h.Unbatched(t, 1000, 20, time.Second)
		return
	}
	alone := h.Unbatched(t, 200, 200, 5*time.Second)
	for _, callers := range []int{300, 1000, 2000} {
		require.GreaterOrEqual(t, h.Unbatched(t, callers, 200, 5*time.Second), 0.7*alone)
	}
}

// TestCheapBesideCostly calls a policy that costs the server little beside callers
// of one that costs it as much as a policy can.
func TestCheapBesideCostly(t *testing.T) {
	if !redistest.Long() {
		cheapBesideCostly(t, 16, time.Second)
		return
	}
	require.LessOrEqual(t, cheapBesideCostly(t, 16, 3*time.Second), 2*time.Millisecond)
	cheapBesideCostly(t, 256, 3*time.Second)
}

// cheapBesideCostly returns the median duration of the cheap policy's calls.
func cheapBesideCostly(t *testing.T, costlyCallers int, d time.Duration) time.Duration {
	h, _ := healthy(t)
	var seen faulttest.Observed
	s := h.Open(faulttest.Pool{})
	cheap := seen.Limiter(t, s, faulttest.Bucket)
	costly := seen.Limiter(t, s, headgate.Policy{Name: "costly",
		Algorithm: algo.BucketedWindow(algo.PerHour(1<<30), algo.MaxBuckets), OnFailure: headgate.FailClosed})
	var took faulttest.Durations
	wait := faulttest.Go(1, func(int) {
		faulttest.Loop(costlyCallers, d, 0, func(ctx context.Context, c, i int) {
			_, _ = costly.Allow(ctx, faulttest.Key(1000+c, i, 5))
		})
	})
	faulttest.Loop(4, d, time.Millisecond, func(ctx context.Context, c, i int) {
		begin := time.Now()
		_, _ = cheap.Allow(ctx, faulttest.Key(c, i, 50))
		took.Since(begin)
	})
	wait()
	t.Logf("beside %d costly callers: p50 %v, %d openings, %d undecided",
		costlyCallers, took.Median(), seen.Openings.Load(), seen.Undecided.Load())
	require.Zero(t, seen.Openings.Load(), seen.Why())
	return took.Median()
}

// TestDenyCacheOverLink: the cache delays calls that pass by at most a third of
// what they take without it. Beside other tests they may take twice as long: a cache that
// held calls for too long made them take four times as long.
func TestDenyCacheOverLink(t *testing.T) {
	if !redistest.Long() {
		require.LessOrEqual(t, denyCacheOverLink(t, 5*time.Millisecond, time.Second/2), 2.0)
		return
	}
	for _, link := range []time.Duration{1, 5, 20, 40} {
		require.LessOrEqual(t, denyCacheOverLink(t, link*time.Millisecond, 3*time.Second), 1.33)
	}
}

// denyCacheOverLink calls a bucket at twice its rate, in turns with the deny cache
// and without. It returns the median of the ratios between their passing calls.
func denyCacheOverLink(t *testing.T, link, d time.Duration) float64 {
	h, _ := healthy(t)
	h.Network.Set(redistest.Delay(link))
	drip := headgate.Policy{Name: "drip", Algorithm: algo.TokenBucket(algo.PerSecond(200), 10), OnFailure: headgate.FailClosed}
	var ratios []float64
	for turn := range 3 {
		var medians [2]time.Duration
		for i, ttl := range []time.Duration{0, -1} {
			var seen faulttest.Observed
			l, err := headgate.New(h.Open(faulttest.Pool{Budget: time.Duration(redistest.Steps(2, 0)) * time.Second}), []headgate.Policy{drip},
				&headgate.Options{Observer: seen.Observe, DenyCacheTTL: ttl})
			require.NoError(t, err)
			medians[i] = passing(l, fmt.Sprint("k", turn, i), d)
			require.Zero(t, seen.Undecided.Load(), "%v, DenyCacheTTL %v: %s", link, ttl, seen.Why())
		}
		ratios = append(ratios, float64(medians[0])/float64(medians[1]))
		t.Logf("link %v: passing calls' p50 %v with the cache, %v without", link, medians[0], medians[1])
	}
	return faulttest.Median(ratios)
}

// passing returns the median duration of the calls that pass, of 20 callers with
// 20 calls per second each.
func passing(l *headgate.Limiter, key string, d time.Duration) time.Duration {
	_, _ = l.Allow(context.Background(), "warm")
	var took faulttest.Durations
	faulttest.Loop(20, d, 50*time.Millisecond, func(ctx context.Context, c, i int) {
		if i == 0 {
			time.Sleep(time.Duration(c) * 50 * time.Millisecond / 20)
		}
		begin := time.Now()
		if d, err := l.Allow(ctx, key); err == nil && d.Allowed {
			took.Since(begin)
		}
	})
	return took.Median()
}
