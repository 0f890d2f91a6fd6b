package headgate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDenialStands: after the server has died, a key that is known to be spent is denied
// without an error. That holds for each failure mode and verb. Other keys get the mode.
func TestDenialStands(t *testing.T) {
	for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed, headgate.FailLocal} {
		for _, shards := range []int{0, 4} {
			t.Run(fmt.Sprint(mode, " ", shards), func(t *testing.T) {
				t.Parallel()
				server, ctx := redistest.Start(t), context.Background()
				var ahead atomic.Int64
				now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				store := standalone.New(clock.Client{Processor: server.Client(t), Now: now}, patient)
				p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.Per(8, algo.MaxPeriod)), OnFailure: mode}
				l := limiter(t, store, &headgate.Options{Instances: 2, Shards: shards}, p)
				require.Eventually(t, func() bool {
					d, err := l.Allow(ctx, "spent")
					require.NoError(t, err)
					return d.Source == headgate.FromDenyCache
				}, 10*time.Second, time.Millisecond)
				server.Kill()
				ahead.Store(int64(30 * time.Second))
				for verb, ask := range map[string]func(key string) (headgate.Decision, error){
					"Allow":  func(key string) (headgate.Decision, error) { return l.Allow(ctx, key) },
					"AtMost": func(key string) (headgate.Decision, error) { return l.AllowAtMost(ctx, key, 3) },
					"Peek":   func(key string) (headgate.Decision, error) { return l.Peek(ctx, headgate.Call{Key: key}) },
					"All":    func(key string) (headgate.Decision, error) { return headgate.All(ctx, l.Part(key), l.Part("other")) },
					"Reserve": func(key string) (headgate.Decision, error) {
						_, d, err := l.Reserve(ctx, headgate.Call{Key: key})
						return d, err
					},
				} {
					if shards > 0 && (verb == "All" || verb == "Reserve") { // refused
						continue
					}
					before := l.Stats().DenyCache
					d, err := ask("spent")
					require.NoError(t, err, verb)
					require.Equal(t, before+1, l.Stats().DenyCache, verb)
					require.NoError(t, d.Err, verb)
					require.False(t, d.Allowed, verb)
					require.Equal(t, headgate.FromDenyCache, d.Source, verb)
					require.Positive(t, d.RetryAfter, verb)
					d, err = ask("fresh for " + verb)
					require.NoError(t, err, verb)
					require.Error(t, d.Err, verb)
					require.Equal(t, mode != headgate.FailClosed, d.Allowed, verb)
				}
				ahead.Add(int64(31 * time.Second))
				d, err := l.Allow(ctx, "spent")
				require.NoError(t, err)
				require.Error(t, d.Err, "it was denied more than a minute ago")
			})
		}
	}
}

// TestResetEndsWhatStands: after a Reset in this process the failure mode decides, though
// the Reset has failed.
func TestResetEndsWhatStands(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	l := limiter(t, standalone.New(server.Client(t), patient), nil, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.Per(1, algo.MaxPeriod)), OnFailure: headgate.FailOpen})
	require.Eventually(t, func() bool {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		return d.Source == headgate.FromDenyCache
	}, 10*time.Second, time.Millisecond)
	server.Kill()
	d, err := l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
	require.Error(t, l.Reset(ctx, "k"))
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailOpen, d.Source)
}

// TestOthersLeaveWhatStands: while no store counts, a settlement of a spent key lets no call
// of that key pass, and neither do Resets of 50,000 other keys.
func TestOthersLeaveWhatStands(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	l := limiter(t, standalone.New(server.Client(t), patient), nil, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.Per(3, algo.MaxPeriod)), OnFailure: headgate.FailOpen})
	var held []*headgate.Reservation
	require.Eventually(t, func() bool {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		if d.Allowed && d.Err == nil {
			held = append(held, r)
		}
		return d.Source == headgate.FromDenyCache
	}, 10*time.Second, time.Millisecond)
	require.Len(t, held, 3)
	require.NoError(t, held[0].Commit(ctx, 1))
	server.Kill()
	for i := range 50_000 {
		_ = l.Reset(ctx, fmt.Sprint("other ", i))
	}
	require.Error(t, held[1].Cancel(ctx))
	for range 100 {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, headgate.FromDenyCache, d.Source)
	}
}

// spentBeyondReach returns a limiter whose key "k" is known to be denied, for longer than the
// deny cache answers, behind a proxy that loses the server's replies.
func spentBeyondReach(t *testing.T) (*redistest.Server, *redistest.Proxy, *headgate.Limiter) {
	server, ctx := redistest.Start(t), context.Background()
	proxy := redistest.NewProxy(t, server.Addr())
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	client := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	l := limiter(t, standalone.New(clock.Client{Processor: client, Now: now}, &standalone.Options{Budget: time.Second}), nil, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.Per(1, algo.MaxPeriod)), OnFailure: headgate.FailOpen})
	require.Eventually(t, func() bool {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		return d.Source == headgate.FromDenyCache
	}, 10*time.Second, time.Millisecond)
	ahead.Store(int64(2 * time.Second))
	proxy.Set(redistest.LoseReply)
	return server, proxy, l
}

// TestLostReserveOfASpentKey: a Reserve whose reply is lost is denied with the error, so
// that its lease is cancelled. Any other call is denied without one.
func TestLostReserveOfASpentKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, proxy, l := spentBeyondReach(t)
	d, err := l.Allow(ctx, "k")
	require.NoError(t, err)
	require.NoError(t, d.Err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
	_, d, err = l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
	require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)

	// Its cancel in the background returns no units that the denial counts.
	proxy.Set(redistest.Pass)
	require.Eventually(t, func() bool {
		leases, err := server.Client(t).Keys(ctx, "headgate:*").Result()
		return err == nil && len(leases) == 2 // the count, and the tombstone
	}, 10*time.Second, time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	server.Kill()
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
}

// TestLostAllOfASpentKey: of several keys too a known denial is one without an error, and
// comes before the failure mode of another key.
func TestLostAllOfASpentKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, _, open := spentBeyondReach(t)
	closed, err := open.OnFailure(headgate.FailClosed)
	require.NoError(t, err)
	for _, another := range []*headgate.Limiter{closed, open} {
		d, err := headgate.All(ctx, open.Part("k"), another.Part("another"))
		require.NoError(t, err)
		require.NoError(t, d.Err)
		require.Equal(t, headgate.FromDenyCache, d.Source)
	}
}

// TestLostWaitOfASpentKey: a Wait whose reply is lost returns ErrPerhapsCounted, also if a
// remembered denial stands, and asks for nothing more.
func TestLostWaitOfASpentKey(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), context.Background()
	proxy := redistest.NewProxy(t, server.Addr())
	p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.Per(10, algo.MaxPeriod)), OnFailure: headgate.FailClosed}
	here := limiter(t, standalone.New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: time.Second}), nil, p)
	there := limiter(t, standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second}), nil, p)
	requireCount(t, there, "k", 0)
	d, err := there.AllowN(ctx, "k", 10)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Eventually(t, func() bool {
		d, err = here.Allow(ctx, "k")
		return err == nil && d.Source == headgate.FromDenyCache
	}, 10*time.Second, time.Millisecond)
	time.Sleep(1100 * time.Millisecond) // the next call asks the store
	require.NoError(t, there.Reset(ctx, "k"))
	proxy.Set(redistest.LoseReply)
	within, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	_, err = here.Wait(within, "k")
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.EqualValues(t, 1, here.Stats().PerhapsCounted)
	requireCount(t, there, "k", 1)
}

// TestRefundOfALostReserve: after the cancel of a Reserve whose reply was lost, the next call
// passes at once.
func TestRefundOfALostReserve(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	l := limiter(t, standalone.New(client, patient), nil, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.Per(5, algo.MaxPeriod)), OnFailure: headgate.FailOpen})
	_, err := l.Peek(ctx, headgate.Call{Key: "k"}) // loads the script
	require.NoError(t, err)
	proxy.Set(redistest.LoseReply)
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{5}})
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
	proxy.Set(redistest.Pass)
	require.Eventually(t, func() bool {
		d, err := l.Allow(ctx, "k")
		return err == nil && d.Source == headgate.FromDenyCache
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, r.Cancel(ctx))
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Equal(t, headgate.FromStore, d.Source)
}

// TestFloodPassesNothing: callers without a pause on a spent key make their process too
// busy to ask for the key in time. None of them passes by FailOpen beyond what is
// refilled, and none gets an error.
func TestFloodPassesNothing(t *testing.T) {
	server := redistest.Start(t)
	limit := algo.PerHour(1000)
	algorithms := map[string]algo.Algorithm{
		"FixedWindow": algo.FixedWindow(limit), "SlidingWindow": algo.SlidingWindow(limit), "BucketedWindow": algo.BucketedWindow(limit, 10),
		"SlidingLog": algo.SlidingLog(limit), "CompactLog": algo.CompactLog(limit), "TokenBucket": algo.TokenBucket(limit, 1000),
	}
	callers, works, length := []int{512}, []time.Duration{0}, 1500*time.Millisecond
	if redistest.Long() {
		callers, works, length = []int{128, 512, 2000}, []time.Duration{0, 20 * time.Microsecond}, 8*time.Second
	}
	for name, a := range algorithms {
		for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed} {
			short := name == "FixedWindow" && mode == headgate.FailOpen || name == "TokenBucket" && mode == headgate.FailClosed
			if !redistest.Long() && !short {
				continue
			}
			for _, n := range callers {
				for _, work := range works {
					t.Run(fmt.Sprint(name, " ", mode, " ", n, " ", work), func(t *testing.T) {
						l := onServer(t, server, true, headgate.Policy{Name: name, Algorithm: a, OnFailure: mode})
						spentUnderFlood(t, l, t.Name(), n, work, length)
					})
				}
			}
		}
	}
}

func spentUnderFlood(t *testing.T, l *headgate.Limiter, key string, callers int, work, length time.Duration) {
	ctx := context.Background()
	var used int64
	require.Eventually(t, func() bool {
		d, err := l.AllowAtMost(ctx, key, 1000)
		require.NoError(t, err)
		used += d.Passed
		return d.Err == nil && !d.Allowed
	}, 10*time.Second, time.Millisecond)
	begin := time.Now()
	var asked, passed, failed atomic.Int64
	faulttest.Go(callers, func(int) {
		for time.Since(begin) < length {
			d, err := l.Allow(ctx, key)
			asked.Add(1)
			if d.Allowed {
				passed.Add(1)
			}
			if err != nil || d.Err != nil {
				failed.Add(1)
			}
			for end := time.Now().Add(work); time.Now().Before(end); {
			}
		}
	})()
	refilled := int64(time.Since(begin)*1000/time.Hour) + 1
	t.Logf("%s: of %d calls %d passed, %d refilled at most, %d errors; stats %+v", key, asked.Load(), passed.Load(), refilled, failed.Load(), l.Stats())
	require.LessOrEqual(t, passed.Load(), refilled, key)
	require.Zero(t, failed.Load(), key)
}
