//go:build go1.25

package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestWaitReserve: a slot that the process gives back wakes the first waiter, and who waits for
// a slot is never told that it is too late.
func TestWaitReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, seen := context.Background(), &events{}
		l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe},
			headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed})
		first, _, err := l.WaitReserve(ctx, headgate.Call{Key: "k", Lease: time.Hour})
		require.NoError(t, err)
		time.AfterFunc(10*time.Second, func() { _ = first.Close() })
		begin := time.Now()
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, _, err := l.WaitReserve(short, headgate.Call{Key: "k"})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireInert(t, r)
		require.Equal(t, 5*time.Second, time.Since(begin))
		r, d, err := l.WaitReserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.NoError(t, r.Commit(ctx))
		_, err = l.Wait(ctx, "k")
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		var waited []time.Duration
		for _, e := range seen.of(headgate.EventDecision) {
			if e.Op == backend.Reserve {
				waited = append(waited, e.Waited.Truncate(time.Second))
			}
		}
		require.Equal(t, []time.Duration{0, 5 * time.Second, 5 * time.Second}, waited)
	})
}

// TestWaitForForeignSlot: a slot that another process gives back is found within a second.
func TestWaitForForeignSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := context.Background(), memory.New(nil)
		slots := headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed}
		other, _, err := limiter(t, remote(s), nil, slots).WaitReserve(ctx, headgate.Call{Key: "k", Lease: time.Hour})
		require.NoError(t, err)
		time.AfterFunc(10*time.Second, func() { _ = other.Close() })
		begin := time.Now()
		_, _, err = limiter(t, remote(s), nil, slots).WaitReserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Greater(t, time.Since(begin), 10*time.Second)
		require.LessOrEqual(t, time.Since(begin), 11*time.Second)
	})
}

// TestWaitReserveMeetsItsCharge: a call whose reply was lost, and whose cancel waits for the end
// of an outage, is not refused for what it was charged itself. It passes within a second of the
// cancel.
func TestWaitReserveMeetsItsCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, lost := time.Now(), false
		s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			if lost && time.Since(begin) < 900*time.Millisecond { // a cancel comes at 0.62 s, the next one at 1.26 s
				return backend.ErrUnavailable
			}
			err := next.Do(ctx, r, d)
			if !lost {
				lost, *d = true, backend.Decision{}
				return backend.ErrPerhapsCounted
			}
			return err
		})
		l := perDay(t, s, headgate.FailClosed, "p", 1)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, d, err := l.WaitReserve(ctx, headgate.Call{Key: "k"})
		took := time.Since(begin)
		time.Sleep(10 * time.Second) // the cancel ends
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Less(t, took, 2300*time.Millisecond)
		requireCount(t, l, "k", 1)
	})
}

// TestCloseEndsWaits: all who wait on a store get ErrClosed when it is closed, and none sleeps
// on until its call would pass.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := context.Background(), memory.New(nil)
		shared, own := limiter(t, s, nil, daily("shared", 1)), limiter(t, s, nil, daily("own", 1000))
		_, err := shared.Allow(ctx, "k")
		require.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(time.Minute, func() { _ = s.Close() })
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				var err error
				if key := fmt.Sprint(i % 2); i < 3 {
					_, err = shared.Wait(ctx, "k")
				} else {
					_, err = headgate.WaitAll(ctx, own.Part(key), shared.Part("k"))
				}
				if !errors.Is(err, headgate.ErrClosed) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		require.Equal(t, time.Minute, time.Since(begin))
		_, err = shared.Wait(ctx, "k")
		require.ErrorIs(t, err, headgate.ErrClosed)
	})
}

// TestWaitEvents: each wait is one event, however often its queue asked.
func TestWaitEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l, _ := spent(t, &headgate.Options{Observer: seen.observe})
		passed := crowd(t, 3, func(int) error {
			_, err := l.Wait(context.Background(), "k")
			return err
		})
		all := seen.of(headgate.EventDecision)[1:]
		require.Len(t, all, 3)
		for i, e := range all {
			require.Equal(t, backend.Take, e.Op)
			require.True(t, e.Decision.Allowed)
			require.Equal(t, passed[i], e.Duration)
			require.Equal(t, passed[i], e.Waited)
		}
	})
}
