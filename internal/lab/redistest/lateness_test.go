//go:build go1.25

package redistest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLateness: the first waits begin before any call of the test, more each
// millisecond. Without a stall the lateness is zero, also where Max ends a wait early.
func TestLateness(t *testing.T) {
	const budget = 5 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		late := Lateness(t, budget)
		time.Sleep(10*budget + time.Millisecond/2)
		synctest.Wait()
		require.Len(t, late.mu.ended, 46*perTick, "those that began from 0 to 45 ms")
		require.Zero(t, late.Max())
		require.Greater(t, len(late.mu.ended), 50*perTick)
	})
}

// TestOverdue: an overdue wait counts, and the worst, not the last.
func TestOverdue(t *testing.T) {
	l := &Late{end: func() {}}
	for _, overdue := range []time.Duration{time.Hour, 2 * time.Hour, -time.Hour, time.Minute} {
		ctx, end := context.WithCancel(t.Context())
		end()
		l.running.Add(1)
		l.wait(ctx, time.Now().Add(-overdue))
	}
	require.InDelta(t, 2*time.Hour, l.Max(), float64(time.Minute))
}
