package headgate_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func borrowing(t testing.TB, server *redistest.Server, a algo.Algorithm, length time.Duration) *headgate.Limiter {
	return borrowingAt(t, server.Addr(), a, length)
}

// borrowingAt returns a limiter that borrows, on a store of its own.
func borrowingAt(t testing.TB, addr string, a algo.Algorithm, length time.Duration) *headgate.Limiter {
	store, err := standalone.Open("redis://"+addr, patient)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	l, err := headgate.New(store, []headgate.Policy{{Name: "api", Algorithm: a, OnFailure: headgate.FailClosed}}, &headgate.Options{Borrow: length})
	require.NoError(t, err)
	return l
}

// TestBorrowDecidesAtHome calls one key from several limiters, each with a store of its
// own. Most calls need no round trip, and no more pass than the limit.
func TestBorrowDecidesAtHome(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const limit = 200_000
	var passed, atHome, calls atomic.Int64
	var wait sync.WaitGroup
	end := time.Now().Add(time.Second)
	for range 4 {
		l := borrowing(t, server, algo.FixedWindow(algo.PerDay(limit)), 50*time.Millisecond)
		for range 4 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for time.Now().Before(end) {
					d, err := l.Allow(context.Background(), "busy")
					if err != nil {
						t.Error(err)
					}
					if calls.Add(1); d.Allowed {
						passed.Add(1)
					}
					if d.Source == headgate.FromLoan {
						atHome.Add(1)
					}
				}
			}()
		}
	}
	wait.Wait()
	t.Logf("%d calls, %d passed, %d at home", calls.Load(), passed.Load(), atHome.Load())
	require.LessOrEqual(t, passed.Load(), int64(limit))
	require.Positive(t, atHome.Load())
	if redistest.Long() { // a busy machine borrows late
		require.Greater(t, atHome.Load(), passed.Load()*8/10)
	}
}

// TestBorrowIsRefused lists what can't be borrowed: New says so.
func TestBorrowIsRefused(t *testing.T) {
	day := algo.PerDay(1000)
	for name, c := range map[string]struct {
		a    algo.Algorithm
		term time.Duration
	}{
		"slots":           {algo.InFlight(10), 50 * time.Millisecond},
		"too short":       {algo.FixedWindow(day), time.Millisecond},
		"too long":        {algo.FixedWindow(day), time.Minute},
		"negative":        {algo.FixedWindow(day), -time.Second},
		"no milliseconds": {algo.FixedWindow(day), 50*time.Millisecond + 1},
	} {
		t.Run(name, func(t *testing.T) {
			list := []headgate.Policy{{Name: "a", Algorithm: c.a, OnFailure: headgate.FailClosed}}
			_, err := headgate.New(memory.New(nil), list, &headgate.Options{Borrow: c.term})
			var invalid *headgate.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "borrow", invalid.What)
			l, err := headgate.New(memory.New(nil), list, nil)
			require.NoError(t, err)
			_, err = l.WithBorrow(c.term)
			require.ErrorAs(t, err, &invalid)
		})
	}
}

// BenchmarkBorrowedCall is a call that is answered from a loan.
func BenchmarkBorrowedCall(b *testing.B) {
	l := borrowing(b, redistest.Start(b), algo.FixedWindow(algo.PerDay(1<<36)), time.Second)
	ctx := context.Background()
	for range 100_000 {
		_, _ = l.Allow(ctx, "busy")
	}
	b.ReportAllocs()
	home := 0
	for b.Loop() {
		if d, _ := l.Allow(ctx, "busy"); d.Source == headgate.FromLoan {
			home++
		}
	}
	b.ReportMetric(float64(home)/float64(b.N), "home/op")
}

// TestEndedCallsTakeNothing: a call whose context has ended takes no unit of a lease.
func TestEndedCallsTakeNothing(t *testing.T) {
	t.Parallel()
	l := borrowing(t, redistest.Start(t), algo.FixedWindow(algo.PerDay(100_000)), time.Second)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	passed := int64(0)
	for range 3000 {
		d, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		passed++
		_, err = l.Allow(gone, "k")
		require.ErrorIs(t, err, context.Canceled)
	}
	d, err := l.Peek(t.Context(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Positive(t, d.Lent, "the test is of a lease")
	require.LessOrEqual(t, d.Used-d.Lent, passed)
}

// TestLoanOfLargeUnits: calls that cost so much that a length needs more units than one
// loan may have.
func TestLoanOfLargeUnits(t *testing.T) {
	t.Parallel()
	l := borrowing(t, redistest.Start(t), algo.FixedWindow(algo.PerDay(algo.MaxCount)), 50*time.Millisecond)
	for range 300 {
		d, err := l.AllowN(t.Context(), "k", 100_000_000_000)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
}

// TestBorrowGivesBackOnClose closes the store of a process that holds units: no other waits
// for their end, and none is charged that was not used.
func TestBorrowGivesBackOnClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, passed := context.Background(), int64(0)
	a := algo.FixedWindow(algo.PerDay(100_000))
	store, err := standalone.Open("redis://"+server.Addr(), patient)
	require.NoError(t, err)
	l, err := headgate.New(store, []headgate.Policy{{Name: "api", Algorithm: a, OnFailure: headgate.FailClosed}}, &headgate.Options{Borrow: time.Second})
	require.NoError(t, err)
	other := borrowing(t, server, a, time.Second)
	require.Eventually(t, func() bool {
		for range 50 {
			d, err := l.Allow(ctx, "k")
			require.NoError(t, err)
			require.True(t, d.Allowed)
			passed++
		}
		d, err := other.Peek(ctx, headgate.Call{Key: "k"})
		return err == nil && d.Lent > 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, store.Close())
	d, err := other.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Zero(t, d.Lent)
	require.Equal(t, passed, d.Used)
	_, err = l.Allow(ctx, "k")
	require.ErrorIs(t, err, headgate.ErrClosed)
}

// TestBorrowOfARefusedCost: a cost that is refused is no demand, and other calls pass.
func TestBorrowOfARefusedCost(t *testing.T) {
	l := borrowing(t, redistest.Start(t), algo.TokenBucket(algo.PerSecond(20_000), 2000), 100*time.Millisecond)
	ctx := context.Background()
	var stop atomic.Bool
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			var err error
			for err == nil && !stop.Load() {
				_, err = l.AllowN(ctx, "k", 10)
			}
			ended <- err
		}()
	}
	for range 30 {
		_, err := l.AllowN(ctx, "k", math.MaxInt64-1<<20)
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
		time.Sleep(30 * time.Millisecond)
	}
	stop.Store(true)
	for range cap(ended) {
		require.NoError(t, <-ended)
	}
}
