//go:build go1.25

package redistest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func (l *Late) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.due)
}

// TestLateness: the first waits begin before any call of the test, more each
// millisecond. Without a stall the lateness is zero.
func TestLateness(t *testing.T) {
	const budget = 5 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		late := Lateness(t, budget)
		require.Equal(t, perTick, late.waits())
		time.Sleep(10*budget + time.Millisecond/2)
		synctest.Wait()
		require.Equal(t, 5*perTick, late.waits())
		require.Zero(t, late.Max())
	})
}

// TestOverdue: an overdue wait counts before it ends, and after.
func TestOverdue(t *testing.T) {
	now := time.Now()
	l := &Late{}
	require.Zero(t, l.Max())
	l.mu.due = map[int]time.Time{0: now.Add(-time.Hour), 1: now.Add(time.Hour)}
	require.GreaterOrEqual(t, l.Max(), time.Hour)
	l.end(0, now.Add(time.Hour))
	l.end(1, now)
	require.Equal(t, 2*time.Hour, l.Max(), "the worst, not the last")
}
