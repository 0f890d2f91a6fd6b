//go:build go1.25

package headgate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestWaitReserve: a slot that comes free is found within a second, and who waits for a
// slot is never told that it is too late.
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
		require.LessOrEqual(t, time.Since(begin), 11*time.Second)
		require.NoError(t, r.Commit(ctx))
		_, err = l.Wait(ctx, headgate.Call{Key: "k"})
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		var waited []time.Duration
		for _, e := range seen.of(headgate.EventDecision) {
			if e.Op == headgate.OpReserve {
				waited = append(waited, e.Waited.Truncate(time.Second))
			}
		}
		require.Equal(t, []time.Duration{0, 5 * time.Second, 5 * time.Second}, waited)
	})
}

// TestWaitEvents: each wait is one event, however often its queue asked.
func TestWaitEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l, _ := spent(t, &headgate.Options{Observer: seen.observe})
		passed := crowd(t, 3, func(int) error {
			_, err := l.Wait(context.Background(), headgate.Call{Key: "k"})
			return err
		})
		all := seen.of(headgate.EventDecision)[1:]
		require.Len(t, all, 3)
		for i, e := range all {
			require.Equal(t, headgate.OpTake, e.Op)
			require.True(t, e.Decision.Allowed)
			require.Equal(t, passed[i], e.Duration)
			require.Equal(t, passed[i], e.Waited)
		}
	})
}
