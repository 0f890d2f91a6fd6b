//go:build go1.25

package headgate_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitBehind queues a head of cost 1 on a spent key and n waiters by l behind it, resets
// the key, and requires that all pass.
func waitBehind(t *testing.T, head, l *headgate.Limiter, cost int64, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d, err := head.AllowAtMost(ctx, "k", 20)
	require.NoError(t, err)
	require.Equal(t, int64(20), d.Passed)
	errs := make([]error, n)
	var wg sync.WaitGroup
	wg.Add(1 + n)
	go func() { defer wg.Done(); _, _ = head.WaitCall(ctx, headgate.Call{Key: "k", Costs: []int64{1}}) }()
	time.Sleep(50 * time.Millisecond)
	for i := range n {
		go func() { defer wg.Done(); _, errs[i] = l.WaitCall(ctx, headgate.Call{Key: "k", Costs: []int64{cost}}) }()
	}
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, head.Reset(ctx, "k"))
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// TestWaitMixedCosts: a cost that can pass is never ErrNeverAdmissible beside smaller ones.
func TestWaitMixedCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "a", Algorithm: algo.TokenBucket(algo.Per(5, time.Second), 20), OnFailure: headgate.FailOpen}}, nil)
		require.NoError(t, err)
		waitBehind(t, l, l, 3, 8)
	})
}

// TestWaitMixedLimits: nor beside waiters with a higher limit.
func TestWaitMixedLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := headgate.Policy{Name: "a", Algorithm: algo.TokenBucket(algo.Per(5, time.Second), 20), OnFailure: headgate.FailOpen}
		l, err := headgate.New(memory.New(nil), []headgate.Policy{p}, nil)
		require.NoError(t, err)
		p.Algorithm = algo.TokenBucket(algo.Per(5, time.Second), 4)
		free, err := l.With(p)
		require.NoError(t, err)
		waitBehind(t, l, free, 1, 8)
	})
}

// TestWaitSpread: one take for several waiters of a spread key fits in a share.
func TestWaitSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "a", Algorithm: algo.TokenBucket(algo.Per(8, time.Second), 20), OnFailure: headgate.FailOpen}}, &headgate.Options{Shards: 4})
		require.NoError(t, err)
		waitBehind(t, l, l, 1, 12)
	})
}

// TestWaitCostsReused: a call's costs are the caller's again once Wait has returned.
func TestWaitCostsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "a", Algorithm: algo.TokenBucket(algo.Per(100, time.Second), 400), OnFailure: headgate.FailOpen}}, nil)
		require.NoError(t, err)
		ctx := context.Background()
		_, err = l.AllowAtMost(ctx, "k", 400)
		require.NoError(t, err)
		var wg sync.WaitGroup
		wait := func(cost int64) {
			wg.Add(1)
			go func() { defer wg.Done(); _, _ = l.WaitCall(ctx, headgate.Call{Key: "k", Costs: []int64{cost}}) }()
			time.Sleep(20 * time.Millisecond)
		}
		wait(40)
		done := make(chan error, 1)
		go func() {
			within, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			costs := []int64{200}
			_, err := l.WaitCall(within, headgate.Call{Key: "k", Costs: costs})
			costs[0] = 5 // of the caller's next call
			done <- err
		}()
		time.Sleep(20 * time.Millisecond)
		wait(5)
		wait(5)
		require.ErrorAs(t, <-done, new(*headgate.DeadlineError))
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = l.WaitCall(within, headgate.Call{Key: "k", Costs: []int64{5}})
		require.NoError(t, err, "there is room for it in 150 ms")
		wg.Wait()
	})
}

// TestWaitManyLeave: many waiters leave, and all others pass.
func TestWaitManyLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{bucket(5000, 20)}, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for j := range 3 {
					ctx, cancel := context.WithCancel(context.Background())
					stays := (i+j)%3 == 0
					if !stays {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(1+(i*7+j)%40)*time.Millisecond)
					}
					_, err := l.WaitCall(ctx, headgate.Call{Key: "k", Costs: []int64{int64(1 + i%3)}})
					cancel()
					if stays && err != nil {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait() // a waiter that nobody notifies is a deadlock of the bubble
	})
}

// TestShadowOfWaitCounts: a shadow counts the calls of Wait one by one.
func TestShadowOfWaitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		passed, failed := 0, 0
		l, err := headgate.New(memory.New(nil), []headgate.Policy{
			{Name: "a", Algorithm: algo.TokenBucket(algo.Per(1000, time.Second), 100), OnFailure: headgate.FailOpen},
			{Name: "tight", Algorithm: algo.FixedWindow(algo.Per(5, 24*time.Hour)), OnFailure: headgate.FailOpen, Shadow: true},
		}, &headgate.Options{Observer: func(e headgate.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Op != backend.Take || e.Shadow == nil || e.Waited == 0 {
				return
			}
			if e.Shadow.Allowed {
				passed++
			}
			if e.Shadow.Err != nil {
				failed++
			}
		}})
		require.NoError(t, err)
		ctx := context.Background()
		_, err = l.AllowAtMost(ctx, "k", 99)
		require.NoError(t, err)
		tight, err := l.With(headgate.Policy{Name: "tight", Algorithm: algo.FixedWindow(algo.Per(5, 24*time.Hour)), OnFailure: headgate.FailOpen, Shadow: true})
		require.NoError(t, err)
		require.NoError(t, tight.Reset(ctx, "k"))
		_, err = l.Wait(ctx, "k") // or takes of five would fill the shadow as well
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 100 {
			wg.Add(1)
			go func() { defer wg.Done(); _, _ = l.Wait(ctx, "k") }()
		}
		wg.Wait()
		d, err := tight.Peek(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		t.Logf("shadow: %d of 100 allowed, %d with an error, used %d", passed, failed, d.Used)
		require.Zero(t, failed)
		require.Equal(t, int64(5), d.Used)
	})
}

// TestShadowOfWaitTakesNoTurns: waiters of a list with a shadow pass together, as without
// one.
func TestShadowOfWaitTakesNoTurns(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	relay := redistest.NewRelay(t, server.Addr(), 5*time.Millisecond)
	client := server.Client(t, func(o *redis.Options) { o.Addr = relay.Addr() })
	l := limiter(t, standalone.New(client, &standalone.Options{Budget: 10 * time.Second}), nil,
		headgate.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(2000), 200), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "s", Algorithm: algo.FixedWindow(algo.PerDay(100_000)), OnFailure: headgate.FailClosed, Shadow: true})
	requireCount(t, l, "k", 0)
	server.ResetStats(t)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			_, err := l.Wait(ctx, "k")
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.Less(t, server.CommandStats(t)["evalsha"].Calls, int64(300))
	each := make([]headgate.State, 2)
	_, err := l.Peek(ctx, headgate.Call{Key: "k", Each: each})
	require.NoError(t, err)
	require.EqualValues(t, 1000, each[1].Used)
}

// TestShadowOfWaitAlone: where calls can't share a round trip, waiters of a list with a shadow
// are asked for one by one, so that the budget ends none of them.
func TestShadowOfWaitAlone(t *testing.T) {
	t.Parallel()
	for name, shards := range map[string]int{"unbatched": 0, "spread": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			relay := redistest.NewRelay(t, server.Addr(), 20*time.Millisecond)
			client := server.Client(t, func(o *redis.Options) { o.Addr = relay.Addr() })
			l := limiter(t, standalone.New(client, &standalone.Options{Budget: time.Second, DisableBatching: shards == 0}), &headgate.Options{Shards: shards},
				headgate.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(100), 1000), OnFailure: headgate.FailOpen},
				headgate.Policy{Name: "s", Algorithm: algo.TokenBucket(algo.PerSecond(100), 1000), OnFailure: headgate.FailOpen, Shadow: true})
			requireCount(t, l, "k", 0)
			ctx, end := context.WithTimeout(context.Background(), 2*time.Second)
			defer end()
			var wg sync.WaitGroup
			var passed, others atomic.Int64
			for range 2000 {
				wg.Go(func() {
					d, err := l.Wait(ctx, "k")
					switch {
					case err != nil:
					case d.Source == headgate.FromStore:
						passed.Add(1)
					default:
						others.Add(1)
					}
				})
			}
			wg.Wait()
			t.Logf("%d passed, %d by the failure mode", passed.Load(), others.Load())
			require.Positive(t, passed.Load())
			require.LessOrEqual(t, others.Load(), int64(redistest.Steps(5, 0))) // a busy machine may be late for a few
		})
	}
}

// TestWaitedOfLeavers: a waiter that leaves before its turn has waited.
func TestWaitedOfLeavers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var waited []time.Duration
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "a", Algorithm: algo.FixedWindow(algo.Per(1, 24*time.Hour)), OnFailure: headgate.FailOpen}},
			&headgate.Options{Observer: func(e headgate.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Type == headgate.EventDecision && e.Err != nil {
					waited = append(waited, e.Waited)
				}
			}})
		require.NoError(t, err)
		_, err = l.Allow(context.Background(), "k")
		require.NoError(t, err)
		head, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Add(2)
		go func() { defer wg.Done(); _, _ = l.Wait(head, "k") }()
		synctest.Wait()
		behind, leave := context.WithCancel(context.Background())
		go func() { defer wg.Done(); _, _ = l.Wait(behind, "k") }()
		time.Sleep(time.Second)
		leave()
		synctest.Wait()
		stop()
		wg.Wait()
		require.Equal(t, []time.Duration{time.Second, time.Second}, waited)
	})
}

// TestFreePartsWaitNot: a call for several keys that costs nothing waits in no queue.
func TestFreePartsWaitNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l := newLevels(t, memory.New(nil), nil)
		_, err := l.user.Do(ctx, headgate.Call{Key: "u", Costs: []int64{5, 5}})
		require.NoError(t, err)
		go func() { _, _ = headgate.WaitAll(ctx, l.user.Part("u", 1, 1), l.org.Part("o")) }()
		synctest.Wait() // it waits for the user's key
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		d, err := headgate.WaitAll(short, l.user.Part("u", 0), l.org.Part("o", 0))
		require.NoError(t, err)
		require.Equal(t, headgate.FromNone, d.Source)
		cancel()
		synctest.Wait()
	})
}
