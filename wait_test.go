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
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/stretchr/testify/require"
)

// counting returns a store that counts its requests.
func counting() (*fake, *atomic.Int64) {
	calls := new(atomic.Int64)
	return &fake{Store: memory.New(nil), do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		calls.Add(1)
		return next.Do(ctx, r, d)
	}}, calls
}

// crowd has n waiters arrive a microsecond apart, and returns when each passed, since
// the first arrived.
func crowd(t *testing.T, n int, wait func(i int) error) []time.Duration {
	t.Helper()
	begin, passed := time.Now(), make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			require.NoError(t, wait(i))
			passed[i] = time.Since(begin)
		}()
		synctest.Wait()
	}
	all.Wait()
	return passed
}

// TestWait: a thousand waiters pass in the order of their arrival, none early, and the
// store is asked at most twice for each.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name  string
		rule  algo.Algorithm
		burst int
	}{
		{"bucket", algo.TokenBucket(algo.PerSecond(100), 20), 20},
		{"one", algo.TokenBucket(algo.PerSecond(100), 1), 1},
		{"log", algo.SlidingLog(algo.PerSecond(100)), 100},
		{"window", algo.FixedWindow(algo.PerSecond(100)), 100},
		{"minute", algo.TokenBucket(algo.PerMinute(100), 10), 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, calls := counting()
				p := headgate.Policy{Name: "p", Algorithm: c.rule, OnFailure: headgate.FailClosed}
				l := limiter(t, s, nil, p)
				const n = 1000
				passed := crowd(t, n, func(int) error {
					d, err := l.Wait(context.Background(), "k")
					require.True(t, d.Allowed || err != nil)
					return err
				})
				each := time.Duration(float64(p.Algorithm.Limit().Period) / float64(p.Algorithm.Limit().Events))
				for i := range passed {
					if i > 0 {
						require.GreaterOrEqual(t, passed[i], passed[i-1], "waiter %d overtook", i)
					}
					earliest := time.Duration(i+1-c.burst) * each
					if c.name == "window" {
						earliest -= time.Second
					}
					require.GreaterOrEqual(t, passed[i], earliest-time.Microsecond, "waiter %d", i)
					if c.name != "log" && c.name != "window" {
						require.LessOrEqual(t, passed[i], max(0, earliest)+150*time.Millisecond+each, "waiter %d", i)
					}
				}
				t.Logf("%d calls to the store for %d waiters", calls.Load(), n)
				require.LessOrEqual(t, calls.Load(), int64(2*n))
			})
		})
	}
}

func bucket(perSecond, burst int64) headgate.Policy {
	return headgate.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(perSecond), burst), OnFailure: headgate.FailClosed}
}

// spent returns a limiter of one call per second whose key "k" is spent, and the number of
// requests to its store since then.
func spent(t *testing.T, o *headgate.Options) (*headgate.Limiter, *atomic.Int64) {
	s, calls := counting()
	l := limiter(t, s, o, bucket(1, 5))
	_, err := l.AllowN(context.Background(), "k", 5)
	require.NoError(t, err)
	calls.Store(0)
	return l, calls
}

// TestWaitDeadline: only a call that surely can't pass in time is refused, and at once.
func TestWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := spent(t, nil)
		begin := time.Now()
		wait := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := l.Wait(ctx, "k")
			return err
		}
		var late *headgate.DeadlineError
		err := wait(900 * time.Millisecond)
		require.ErrorAs(t, err, &late)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, late.RetryAfter)
		require.Zero(t, time.Since(begin))

		go func() { require.NoError(t, wait(time.Hour)) }()
		synctest.Wait()
		asked := calls.Load()
		require.ErrorAs(t, wait(900*time.Millisecond), &late, "by what the head was told")
		require.Equal(t, asked, calls.Load())
		require.Zero(t, time.Since(begin))
		require.ErrorAs(t, wait(1500*time.Millisecond), &late)
		require.Equal(t, time.Second, time.Since(begin), "refused as the head: until then the other might have left")

		var ahead sync.WaitGroup
		for range 3 {
			ahead.Go(func() { require.NoError(t, wait(time.Hour)) })
		}
		synctest.Wait()
		begin = time.Now()
		err = wait(1500 * time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorAs(t, err, &late, "it was never the head")
		require.Equal(t, 1500*time.Millisecond, time.Since(begin))
		ahead.Wait()
	})
}

// TestWaitLeaves: a waiter whose context ends takes nothing, head or not, and the next
// one passes in its place.
func TestWaitLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := spent(t, nil)
		begin := time.Now()
		ended := make(chan error, 3)
		for _, after := range []time.Duration{100, 500, 300} {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after*time.Millisecond, cancel)
			go func() {
				_, err := l.Wait(ctx, "k")
				ended <- err
			}()
			synctest.Wait()
		}
		d, err := l.Wait(context.Background(), "k")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 5, d.Used)
		require.Equal(t, time.Second, time.Since(begin))
		for range 3 {
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
}

// slow returns a store of ours whose answers take their time.
func slow(delay *time.Duration) *fake {
	return inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		err := next.Do(ctx, r, d)
		time.Sleep(*delay)
		return err
	})
}

// TestWaitLeavesDuringTake: what was taken for a waiter that leaves meanwhile is not
// lost: it passes.
func TestWaitLeavesDuringTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := 50 * time.Millisecond
		l := limiter(t, slow(&delay), nil, headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(75*time.Millisecond, cancel) // the first has passed, and one take is under way for the others
		var passed atomic.Int64
		faulttest.Go(8, func(int) {
			if _, err := l.Wait(ctx, "k"); err == nil {
				passed.Add(1)
			}
		})()
		d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, passed.Load(), d.Used)
		require.EqualValues(t, 8, d.Used)
	})
}

// TestWaitRefuses what can never pass, before it queues.
func TestWaitRefuses(t *testing.T) {
	l, calls := spent(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = l.Wait(ctx, "k") }()
	defer cancel()
	ended, end := context.WithCancel(context.Background())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		call headgate.Call
		err  error
	}{
		"cost":  {ctx, headgate.Call{Key: "k", Costs: []int64{6}}, headgate.ErrNeverAdmissible},
		"costs": {ctx, headgate.Call{Key: "k", Costs: []int64{1, 1}}, nil},
		"key":   {ctx, headgate.Call{}, nil},
		"nil":   {nil, headgate.Call{Key: "k"}, nil},
		"ended": {ended, headgate.Call{Key: "k"}, context.Canceled},
	} {
		d, err := l.WaitCall(c.ctx, c.call)
		require.Error(t, err, name)
		require.Zero(t, d)
		if c.err != nil {
			require.ErrorIs(t, err, c.err, name)
		}
	}
	require.LessOrEqual(t, calls.Load(), int64(1))
	_, err := new(headgate.Limiter).Wait(ctx, "k")
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, _, err = new(headgate.Limiter).WaitReserve(ctx, headgate.Call{Key: "k"})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	hot := limiter(t, memory.New(nil), &headgate.Options{Shards: 4}, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(40)), OnFailure: headgate.FailClosed})
	_, err = hot.WaitCall(ctx, headgate.Call{Key: "k", Costs: []int64{11}})
	require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
}

// TestWaitFailures: FailOpen passes at once, FailClosed waits for the store, and a call
// that was perhaps counted is asked no second time.
func TestWaitFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := context.Background(), newLossy()
		s.lose(onAll, 0)
		p := bucket(10, 10)
		p.OnFailure = headgate.FailOpen
		d, err := limiter(t, s, nil, p).Wait(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, headgate.FromFailOpen, d.Source)

		l := limiter(t, s, nil, bucket(10, 10))
		begin := time.Now()
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err = l.Wait(short, "k")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, headgate.ErrUnavailable, "why it waited so long")
		require.Equal(t, 500*time.Millisecond, time.Since(begin), "it was not sure before")
		time.AfterFunc(1500*time.Millisecond, func() { s.lose(0, 0) })
		d, err = l.Wait(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)

		s.lose(0, onAll)
		d, err = l.Wait(ctx, "k")
		require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
		require.Zero(t, d)
		s.lose(0, 0)
		d, err = l.Peek(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.EqualValues(t, 2, d.Used, "each charged once")
	})
}

// TestWaitFailsLocal: a queue takes for one at a time where its share is less than for
// all.
func TestWaitFailsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLossy()
		s.lose(onAll, 0)
		p := bucket(100, 20)
		p.OnFailure = headgate.FailLocal
		l := limiter(t, s, &headgate.Options{Instances: 10}, p)
		passed := crowd(t, 20, func(int) error {
			d, err := l.Wait(context.Background(), "k")
			require.Equal(t, headgate.FromFailLocal, d.Source)
			return err
		})
		require.GreaterOrEqual(t, passed[19], 1790*time.Millisecond) // 10 per second
		require.LessOrEqual(t, passed[19], 2*time.Second)
	})
}

// TestWaitCosts: a cheap call does not overtake a costly one, whatever limiter both came
// by, and a call of another list or key does not wait for them.
func TestWaitCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l, _ := spent(t, nil)
		other, err := l.With(bucket(2, 6))
		require.NoError(t, err)
		_, err = l.Wait(ctx, "another")
		require.NoError(t, err)
		begin := time.Now()
		passed := crowd(t, 3, func(i int) error {
			each := make([]headgate.State, 1)
			c := headgate.Call{Key: "k", Costs: []int64{[]int64{4, 1, 1}[i]}, Each: each}
			by := l
			if i > 0 {
				by = other
			}
			d, err := by.WaitCall(ctx, c)
			require.Zero(t, d.Passed)
			require.Equal(t, d.State, each[0])
			return err
		})
		require.Equal(t, 4*time.Second, passed[0])
		require.GreaterOrEqual(t, passed[1], passed[0])
		require.LessOrEqual(t, time.Since(begin), 5*time.Second)
	})
}

// TestWaitDeadlineOfHead: a head that has too little time for a take for its whole queue
// takes for itself.
func TestWaitDeadlineOfHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delay time.Duration
		l := limiter(t, slow(&delay), nil, bucket(100, 20))
		_, err := l.AllowN(context.Background(), "k", 20)
		require.NoError(t, err)
		delay = time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		first := make(chan error, 1)
		go func() { // leaves, and the next head meets a queue of nine
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			_, err := l.WaitCall(short, headgate.Call{Key: "k", Costs: []int64{1}})
			first <- err
		}()
		synctest.Wait()
		second := make(chan error, 1)
		go func() {
			_, err := l.Wait(ctx, "k")
			second <- err
		}()
		synctest.Wait()
		wait := faulttest.Go(8, func(int) {
			_, _ = l.Wait(context.Background(), "k")
		})
		require.Error(t, <-first)
		err = <-second
		wait()
		require.NoError(t, err)
	})
}
