package shard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestPerhapsCountedEndsThere: a take whose answer was lost is not tried on
// another sub-key; the failure mode decides.
func TestPerhapsCountedEndsThere(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := standalone.New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: longBudget})
	s := wrappers(store)
	ps := one(algo.FixedWindow(algo.Per(160, algo.MaxPeriod)), 16)
	ps.policies[0].OnFailure = backend.FailOpen
	require.True(t, do(t, s, take("k", ps, 1)).Allowed)
	for range 3 {
		before := do(t, s, peek("k", ps, 0)).Used
		server.ResetStats(t)
		proxy.Set(redistest.ResetAfterRequest.Times(1))
		d := do(t, s, take("k", ps, 1))
		require.True(t, d.Allowed)
		require.Equal(t, backend.FromFailOpen, d.Source)
		require.ErrorIs(t, d.Err, backend.ErrPerhapsCounted)
		require.EqualValues(t, 160, d.Limit)
		require.EqualValues(t, 1, server.CommandStats(t)["evalsha"].Calls)
		require.Equal(t, before+1, do(t, s, peek("k", ps, 0)).Used)
	}
}

// TestNobodyAnswers: with the server gone every share meets its mode: open,
// closed, or of its own local count, which together are the limit / instances
// at most.
func TestNobodyAnswers(t *testing.T) {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), nil)
	limiter := func(m headgate.FailureMode, k int) *headgate.Limiter {
		p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.Per(170, algo.MaxPeriod)), OnFailure: m}
		l, err := headgate.New(store, []headgate.Policy{p}, &headgate.Options{Instances: 2, Shards: k})
		require.NoError(t, err)
		return l
	}
	_, err := limiter(headgate.FailOpen, 16).Allow(context.Background(), "warm")
	require.NoError(t, err)
	server.Kill()
	for _, c := range []struct {
		mode   headgate.FailureMode
		passes int
	}{{headgate.FailOpen, 300}, {headgate.FailClosed, 0}, {headgate.FailLocal, 16 * 5}} {
		l := limiter(c.mode, 16)
		for i := range 300 {
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
			require.Equal(t, i < c.passes, d.Allowed, "mode %d, call %d", c.mode, i)
			require.Equal(t, i >= c.passes, d.RetryAfter > 0)
		}
		stats := l.Stats()
		require.EqualValues(t, 300, stats.FailOpen+stats.FailClosed+stats.FailLocal, "a call counts once, however many shares it tried")
		d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.Error(t, l.Reset(context.Background(), "k"))
	}
}

// TestGarbageInOneShare: that share is dead, the others serve, and nothing of
// what it may hold is handed out.
func TestGarbageInOneShare(t *testing.T) {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), &standalone.Options{Budget: longBudget})
	s, ps := wrappers(store), one(algo.FixedWindow(algo.Per(160, algo.MaxPeriod)), 16)
	require.True(t, do(t, s, take("k", ps, 1)).Allowed)
	key := "headgate:{~k~" + shard.Names("k", 16)[3] + "}"
	client := server.Client(t)
	require.NoError(t, client.Del(t.Context(), key).Err())
	require.NoError(t, client.Set(t.Context(), key, "garbage", time.Hour).Err())
	require.Equal(t, backend.Estimated, do(t, s, peek("k", ps, 1)).Known)
	passed := 0
	for {
		d := do(t, s, take("k", ps, 1))
		if !d.Allowed {
			require.Equal(t, backend.FromFailClosed, d.Source)
			var bad *backend.CorruptError
			require.ErrorAs(t, d.Err, &bad)
			require.Equal(t, "k", bad.Key)
			break
		}
		require.NoError(t, d.Err)
		passed++
	}
	require.GreaterOrEqual(t, passed, 149)
	require.LessOrEqual(t, passed, 150)
}

// TestWaitingEndsWithTheCaller: a caller's context ends its wait for a sum,
// which goes on for the others.
func TestWaitingEndsWithTheCaller(t *testing.T) {
	s, c, _ := counting(t)
	ps := one(algo.FixedWindow(algo.PerDay(64)), 64)
	for do(t, s, take("k", ps, 1)).Allowed {
	}
	fresh := shard.New(plain{c}, struct{ backend.Store }{c}) // which knows nothing
	c.slow = 10 * time.Millisecond
	c.asked.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	late, begin := redistest.Lateness(t, 100*time.Millisecond), time.Now()
	r := take("k", ps, 1)
	r.Each = make([]backend.State, 1)
	_, err := layer.Ask(ctx, fresh, r)
	took := time.Since(begin)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, took, 500*time.Millisecond+late.Max(), "the sum takes 640 ms")
	require.False(t, do(t, fresh, take("k", ps, 1)).Allowed)
	require.LessOrEqual(t, c.asked.Load(), int64(64+4), "the sum that was under way")
}

// TestOneBudget: a call that asks several times in turn takes no longer than
// one that asks once, and then its mode decides.
func TestOneBudget(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const budget = time.Second
	store := standalone.New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: budget})
	other := wrappers(standalone.New(server.Client(t), &standalone.Options{Budget: longBudget}))
	s, ps := wrappers(store), one(algo.FixedWindow(algo.Per(16, algo.MaxPeriod)), 16)
	ps.policies[0].OnFailure = backend.FailOpen
	require.True(t, do(t, s, take("k", ps, 1)).Allowed)
	for do(t, other, take("k", ps, 1)).Allowed {
	}
	proxy.Set(redistest.Delay(600 * time.Millisecond)) // one answer comes in time, a second does not
	late, begin := redistest.Lateness(t, budget), time.Now()
	d := do(t, s, take("k", ps, 1))
	took := time.Since(begin)
	require.Less(t, took, budget+150*time.Millisecond+late.Max())
	require.Equal(t, backend.FromFailOpen, d.Source)
	require.Error(t, d.Err)
}

// racing is a store where another process takes what a share has just before each take, and
// where one share does not answer.
type racing struct {
	*memory.Store
	gone string
	busy atomic.Bool
}

func (s *racing) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if r.Sub == s.gone {
		return backend.ErrUnavailable
	}
	if s.busy.Load() && r.Op == backend.Take {
		other := backend.Request{Op: backend.Take, Group: backend.Group{Key: r.Key, Sub: r.Sub, Policies: r.Policies, Cost: 1, Run: 10, UpTo: true}}
		if err := s.Store.Do(ctx, &other, new(backend.Decision)); err != nil {
			return err
		}
	}
	return s.Store.Do(ctx, r, d)
}

// TestPartialSumDeniesNothing: a call that loses each race for what the shares that answer
// have left meets its failure mode if another one did not answer.
func TestPartialSumDeniesNothing(t *testing.T) {
	next := &racing{Store: memory.New(nil), gone: shard.Names("k", 16)[7]}
	s := shard.New(breaker.New(next, nil), next)
	ps := one(algo.FixedWindow(algo.PerDay(160)), 16)
	ps.policies[0].OnFailure = backend.FailOpen
	next.busy.Store(true)
	d := do(t, s, take("k", ps, 1))
	require.True(t, d.Allowed, "%+v", d)
	require.Equal(t, backend.FromFailOpen, d.Source)
	require.ErrorIs(t, d.Err, backend.ErrUnavailable)
}

// TestSilenceLeavesWhatStands: a spent key stays denied though one share is dead, and another one
// denies again after it has not answered once.
func TestSilenceLeavesWhatStands(t *testing.T) {
	_, h, now := hooking()
	h.Shared().Local = false // the deny cache is over stores on Redis only
	list := one(algo.FixedWindow(algo.PerDay(40)), 4)
	list.policies[0].OnFailure = headgate.FailOpen
	l, err := headgate.New(h, list.policies, &headgate.Options{Shards: list.k})
	require.NoError(t, err)
	allow := func() headgate.Decision {
		d, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		return d
	}
	for allow().Source != headgate.FromDenyCache {
	}
	now.Add(1_100_000)     // what is known is to be asked for again
	var silent atomic.Bool // one of the others was
	dead := shard.Names("k", 4)[0]
	h.after = func(r backend.Request, _ *backend.Decision, err *error) {
		if r.Sub == dead || silent.CompareAndSwap(false, true) {
			*err = backend.ErrUnavailable
		}
	}
	for range 3 {
		require.False(t, allow().Allowed)
		require.True(t, silent.Load())
		now.Add(1_100_000)
	}
}

// TestFloodBesideADeadShare: of a spent TokenBucket the store and its failure mode together let
// pass what is refilled while one share is dead. The shares refill at once, so that the living
// ones pass sooner after each other than their key refills.
func TestFloodBesideADeadShare(t *testing.T) {
	for _, k := range []int{2, 4, 16} {
		_, h, now := hooking()
		h.Shared().Local = false // the deny cache is over stores on Redis only
		list := one(algo.TokenBucket(algo.PerSecond(20), 32), k)
		list.policies[0].OnFailure = headgate.FailOpen
		l, err := headgate.New(h, list.policies, &headgate.Options{Shards: k})
		require.NoError(t, err)
		for range 100 {
			_, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
		}
		h.after = func(r backend.Request, _ *backend.Decision, err *error) {
			if r.Sub == shard.Names("k", k)[0] {
				*err = backend.ErrUnavailable
			}
		}
		passed := map[headgate.Source]int{}
		for range 10 * 200 {
			now.Add(5000)
			d, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			if d.Allowed {
				passed[d.Source]++
			}
		}
		require.LessOrEqual(t, passed[headgate.FromStore]+passed[headgate.FromFailOpen], 10*20+k, "K %d: %v", k, passed)
		require.Greater(t, passed[headgate.FromFailOpen], 10*20/k/2)
	}
}
