package redisrate

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	ctx        = context.Background()
	nilContext context.Context
)

// step is a call and what redis_rate's own tests expect of it.
type step struct {
	op                  string
	n                   int
	allowed, remaining  int
	retryAfter          time.Duration // -1: it passed
	resetAfter, retryBy time.Duration // retryBy: how much retryAfter may differ
}

const ms = time.Millisecond

// The cases of redis_rate's rate_test.go, at 10 per second.
var cases = map[string][]step{
	"Allow": {
		{"AllowN", 1, 1, 9, -1, 100 * ms, 0},
		{op: "Reset"},
		{"AllowN", 1, 1, 9, -1, 100 * ms, 0},
		{"AllowN", 2, 2, 7, -1, 300 * ms, 0},
		{"AllowN", 7, 7, 0, -1, 1000 * ms, 0},
		{"AllowN", 1000, 0, 0, 99 * time.Second, 1000 * ms, time.Second},
	},
	"AllowN of zero": {
		{"AllowN", 0, 0, 10, -1, 0, 0},
		{"AllowN", 1, 1, 9, -1, 100 * ms, 0},
		{"AllowN", 0, 0, 9, -1, 100 * ms, 0},
	},
	"AllowAtMost": {
		{"AllowN", 1, 1, 9, -1, 100 * ms, 0},
		{"AllowAtMost", 2, 2, 7, -1, 300 * ms, 0},
		{"AllowN", 0, 0, 7, -1, 300 * ms, 0},
		{"AllowAtMost", 10, 7, 0, -1, 1000 * ms, 0},
		{"AllowN", 0, 0, 0, -1, 1000 * ms, 0},
		{"AllowAtMost", 1000, 0, 0, 100 * ms, 1000 * ms, 0},
		{"AllowN", 1000, 0, 0, 99 * time.Second, 1000 * ms, time.Second},
	},
	"AllowAtMost of zero": {
		{"AllowAtMost", 0, 0, 10, -1, 0, 0},
		{"AllowN", 1, 1, 9, -1, 100 * ms, 0},
		{"AllowAtMost", 0, 0, 9, -1, 100 * ms, 0},
	},
}

func (s step) do(l *Limiter, key string) (*Result, error) {
	switch s.op {
	case "Reset":
		return nil, l.Reset(ctx, key)
	case "AllowAtMost":
		return l.AllowAtMost(ctx, key, PerSecond(10), s.n)
	}
	if s.n == 1 {
		return l.Allow(ctx, key, PerSecond(10))
	}
	return l.AllowN(ctx, key, PerSecond(10), s.n)
}

// check compares an answer with the expected one, late by as much as has passed
// since the first call.
func (s step) check(t *testing.T, r *Result, late time.Duration) {
	t.Helper()
	if s.op == "Reset" {
		return
	}
	require.Equal(t, PerSecond(10), r.Limit)
	require.Equal(t, s.allowed, r.Allowed, s)
	require.Equal(t, s.remaining, r.Remaining, s)
	require.InDelta(t, s.resetAfter-late/2, r.ResetAfter, float64(late/2+ms), s)
	if s.retryAfter < 0 {
		require.Equal(t, time.Duration(-1), r.RetryAfter)
		return
	}
	require.InDelta(t, s.retryAfter, r.RetryAfter, float64(s.retryBy+late+ms), s)
}

// onServer is NewLimiter with a budget that a busy machine keeps.
func onServer(t *testing.T, rdb standalone.Client) *Limiter {
	s := standalone.New(rdb, &standalone.Options{Budget: 10 * time.Second})
	t.Cleanup(func() { _ = s.Close() })
	return newLimiter(s)
}

// TestRedisRatesOwnCases: on a clock that stands still, and on a real server.
func TestRedisRatesOwnCases(t *testing.T) {
	require.Equal(t, "10 req/s (burst 10)", PerSecond(10).String())
	require.False(t, PerSecond(10).IsZero())
	at := time.Unix(1_745_000_000, 0)
	for name, steps := range cases {
		t.Run("memory/"+name, func(t *testing.T) {
			l := newLimiter(memory.New(&memory.Options{Now: func() time.Time { return at }}))
			for _, s := range steps {
				r, err := s.do(l, "test_id")
				require.NoError(t, err)
				s.check(t, r, 0)
			}
		})
		t.Run("redis/"+name, func(t *testing.T) { onRedis(t, name, steps) })
	}
}

// TestRemainingOfADenial: it is the units that are left. redis_rate answers 0.
func TestRemainingOfADenial(t *testing.T) {
	at := time.Unix(1_745_000_000, 0)
	l := newLimiter(memory.New(&memory.Options{Now: func() time.Time { return at }}))
	for _, s := range []step{
		{"AllowN", 4, 4, 6, -1, 400 * ms, 0},
		{"AllowN", 7, 0, 6, 100 * ms, 400 * ms, 0},
		{"AllowN", 1000, 0, 6, 99400 * ms, 400 * ms, 0},
		{"AllowN", 6, 6, 0, -1, 1000 * ms, 0},
	} {
		r, err := s.do(l, "test_id")
		require.NoError(t, err)
		s.check(t, r, 0)
	}
}

// onRedis makes the calls in less than the time in which a unit comes back, since
// the numbers are only then what they should be.
func onRedis(t *testing.T, name string, steps []step) {
	l := onServer(t, redistest.Shared(t).Client(t))
	for try := range 50 {
		begin, key := time.Now(), fmt.Sprint(name, try)
		var results []*Result
		for _, s := range steps {
			r, err := s.do(l, key)
			require.NoError(t, err)
			results = append(results, r)
		}
		late := time.Since(begin)
		if late > 90*ms {
			continue
		}
		for i, s := range steps {
			s.check(t, results[i], late)
		}
		return
	}
	t.Fatal("the machine was too busy, 50 times in a row")
}

// TestRetryAfter is redis_rate's: 1 per millisecond.
func TestRetryAfter(t *testing.T) {
	l := onServer(t, redistest.Shared(t).Client(t))
	limit := Limit{Rate: 1, Period: ms, Burst: 1}
	for range 1000 {
		r, err := l.Allow(ctx, "retry after", limit)
		require.NoError(t, err)
		require.LessOrEqual(t, r.RetryAfter, ms)
	}
}

func TestLimits(t *testing.T) {
	require.Equal(t, Limit{7, 7, time.Minute}, PerMinute(7))
	require.Equal(t, Limit{7, 7, time.Hour}, PerHour(7))
	require.Equal(t, "7 req/m (burst 7)", PerMinute(7).String())
	require.Equal(t, "7 req/h (burst 7)", PerHour(7).String())
	require.Equal(t, "1 req/10s (burst 2)", Limit{1, 2, 10 * time.Second}.String())
	require.True(t, Limit{}.IsZero())
}

// TestALostReplyChargesOnce: each reply is lost in turn, and each call is charged
// once. redis_rate's own client sends such a script up to four times.
func TestALostReplyChargesOnce(t *testing.T) {
	server := redistest.Shared(t)
	for _, fault := range []redistest.Fault{
		redistest.ResetAfterRequest, redistest.HalfReply, redistest.SwallowReply(150 * ms),
	} {
		p := redistest.NewProxy(t, server.Addr())
		client := redis.NewClient(&redis.Options{Addr: p.Addr()}) // go-redis's defaults, its retries too
		defer client.Close()
		l, direct := NewLimiter(client), onServer(t, server.Client(t))
		limit := Limit{Rate: 1, Period: time.Hour, Burst: 1000}
		_, err := l.Allow(ctx, "warm", limit)
		require.NoError(t, err)
		for _, op := range []string{"AllowN", "AllowAtMost"} {
			key := fault.String() + op
			p.Set(fault.Times(1))
			r, err := step{op: op, n: 3}.with(l, key, limit)
			require.ErrorIs(t, err, headgate.ErrPerhapsCounted, key)
			require.Nil(t, r)
			r, err = direct.AllowN(ctx, key, limit, 0)
			require.NoError(t, err)
			require.Equal(t, 997, r.Remaining, "%s: the server ran it once", key)
		}
		require.Equal(t, 2, p.Hit())
	}
}

func (s step) with(l *Limiter, key string, limit Limit) (*Result, error) {
	if s.op == "AllowAtMost" {
		return l.AllowAtMost(ctx, key, limit, s.n)
	}
	return l.AllowN(ctx, key, limit, s.n)
}

// TestAllowAtMostKeepsTheLimit: 32 callers ask at most 7 of 1,000 units until each
// is denied; together they get no unit more, and none is left.
func TestAllowAtMostKeepsTheLimit(t *testing.T) {
	l := onServer(t, redistest.Shared(t).Client(t))
	limit := Limit{Rate: 1, Period: time.Hour, Burst: 1000}
	var taken atomic.Int64
	var running sync.WaitGroup
	for range 32 {
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				r, err := l.AllowAtMost(ctx, "most", limit, 7)
				if err != nil {
					t.Error(err)
				}
				if err != nil || r.Allowed == 0 {
					return
				}
				taken.Add(int64(r.Allowed))
			}
		}()
	}
	running.Wait()
	require.Equal(t, int64(1000), taken.Load())
}

// TestAllowAtMostIsExactAfterADenial: a denial that is remembered in memory does
// not hide the units that have come since.
func TestAllowAtMostIsExactAfterADenial(t *testing.T) {
	server := redistest.Shared(t)
	l, elsewhere := onServer(t, server.Client(t)), onServer(t, server.Client(t))
	limit := Limit{Rate: 1, Period: time.Hour, Burst: 10}
	for range 11 {
		_, err := l.Allow(ctx, "exact", limit)
		require.NoError(t, err)
	}
	require.NoError(t, elsewhere.Reset(ctx, "exact"))
	r, err := l.AllowAtMost(ctx, "exact", limit, 1000)
	require.NoError(t, err)
	require.Equal(t, 10, r.Allowed)
}

func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	l := NewLimiter(client)
	defer l.Close()
	require.Eventually(t, func() bool { // a busy machine may spend the budget
		r, err := l.AllowN(ctx, fmt.Sprintf("user:{%d}", time.Now().UnixNano()), PerMinute(10), 4)
		return err == nil && r.Remaining == 6
	}, 30*time.Second, time.Millisecond)
}

// slow is a dialer of connections that take longer to begin than Headgate's own default
// budget.
func slow(ctx context.Context, network, addr string) (net.Conn, error) {
	time.Sleep(250 * ms)
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// TestFirstCall: it waits for its connection, as with redis_rate.
func TestFirstCall(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), Dialer: slow})
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t).Addrs(), Dialer: slow})
	for name, rdb := range map[string]Client{"one server": one, "cluster": many} {
		t.Run(name, func(t *testing.T) {
			l := NewLimiter(rdb)
			defer l.Close()
			r, err := l.Allow(ctx, t.Name(), PerMinute(10))
			require.NoError(t, err)
			require.Equal(t, 9, r.Remaining)
		})
	}
	require.NoError(t, one.Close())
	require.NoError(t, many.Close())
}

// TestBudget: a call takes no longer than the client's ReadTimeout, and the calls after it
// are refused by the circuit.
func TestBudget(t *testing.T) {
	for read, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, -1: 5 * time.Second, -2: 5 * time.Second, ms: 100 * ms,
		2 * time.Second: 2 * time.Second, time.Hour: time.Minute,
	} {
		one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: read})
		many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: read})
		require.Equal(t, want, budget(one.Options().ReadTimeout))
		require.Equal(t, want, budget(many.Options().ReadTimeout))
		require.NoError(t, one.Close())
		require.NoError(t, many.Close())
	}
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 300 * ms})
	defer rdb.Close()
	l := NewLimiter(rdb)
	_, err := l.Allow(ctx, t.Name(), PerMinute(10))
	require.NoError(t, err)
	p.Set(redistest.SwallowReply(time.Minute))
	begin := time.Now()
	_, err = l.Allow(ctx, t.Name(), PerMinute(10))
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.Greater(t, time.Since(begin), 250*ms)
	require.Less(t, time.Since(begin), 10*time.Second) // redis_rate's client tries four times
	require.Eventually(t, func() bool {
		begin := time.Now()
		_, err := l.Allow(ctx, t.Name(), PerMinute(10))
		return err != nil && time.Since(begin) < 50*ms
	}, 30*time.Second, ms)
}

func TestDeadServer(t *testing.T) {
	l := NewLimiter(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	r, err := l.Allow(ctx, "k", PerSecond(1))
	require.ErrorIs(t, err, headgate.ErrUnavailable)
	require.Nil(t, r)
	_, err = l.AllowAtMost(ctx, "k", PerSecond(5), 3)
	require.ErrorIs(t, err, headgate.ErrUnavailable)
	require.ErrorIs(t, l.Reset(ctx, "k"), headgate.ErrUnavailable)
}

func TestRefused(t *testing.T) {
	good := newLimiter(memory.New(nil))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, f := range map[string]func() (*Result, error){
		"zero limit": func() (*Result, error) { return good.Allow(ctx, "k", Limit{}) },
		"no burst":   func() (*Result, error) { return good.AllowAtMost(ctx, "k", Limit{Rate: 1, Period: time.Second}, 1) },
		"negative":   func() (*Result, error) { return good.AllowN(ctx, "k", PerSecond(1), -1) },
		"at most -1": func() (*Result, error) { return good.AllowAtMost(ctx, "k", PerSecond(1), -1) },
		"no key":     func() (*Result, error) { return good.Allow(ctx, "", PerSecond(1)) },
		"no context": func() (*Result, error) { return good.Allow(nilContext, "k", PerSecond(1)) },
		"ring":       func() (*Result, error) { return NewLimiter(ring).Allow(ctx, "k", PerSecond(1)) },
		"no client":  func() (*Result, error) { return NewLimiter(nil).Allow(ctx, "k", PerSecond(1)) },
		"nil client": func() (*Result, error) {
			return NewLimiter((*redis.Client)(nil)).AllowAtMost(ctx, "k", PerSecond(1), 1)
		},
		"nil cluster client": func() (*Result, error) {
			return NewLimiter((*redis.ClusterClient)(nil)).Allow(ctx, "k", PerSecond(1))
		},
		"zero":       func() (*Result, error) { return new(Limiter).Allow(ctx, "k", PerSecond(1)) },
		"zero reset": func() (*Result, error) { return nil, new(Limiter).Reset(ctx, "k") },
	} {
		r, err := f()
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Nil(t, r, name)
	}
	_, err := NewLimiter(ring).Allow(ctx, "k", PerSecond(1))
	require.ErrorContains(t, err, "GetShardClients, or a *redis.ClusterClient", "the ways out")
	require.NoError(t, new(Limiter).Close())
	require.NoError(t, NewLimiter(nil).Close())
	r, err := good.AllowN(ctx, "k", PerSecond(1), 1<<62)
	require.NoError(t, err)
	require.Positive(t, r.RetryAfter)
}

// TestHigherCostFromMemory: a spent bucket's denial of one unit does not shorten the
// RetryAfter of more units.
func TestHigherCostFromMemory(t *testing.T) {
	l := NewLimiter(redistest.Shared(t).Client(t))
	limit := Limit{Rate: 10, Burst: 100, Period: time.Minute}
	for _, c := range []struct {
		n     int
		retry time.Duration
	}{{100, -1}, {1, 6 * time.Second}, {100, 10 * time.Minute}} {
		r, err := l.AllowN(ctx, t.Name(), limit, c.n)
		require.NoError(t, err)
		require.InDelta(t, c.retry, r.RetryAfter, float64(5*time.Second), c.n)
	}
}
