package memory

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestCalendarFollowsTheWallClock: where the wall clock was set since the store was
// made, a Calendar's period ends by it, and other counts age by the time that has
// passed.
func TestCalendarFollowsTheWallClock(t *testing.T) {
	s := New(nil)
	s.clock.epoch -= (5 * time.Hour).Microseconds() // as if the clock had been set 5 hours ahead since
	list := []backend.Policy{
		by("day", algo.Calendar(3, algo.Day(), time.UTC)), by("window", algo.SlidingLog(algo.PerHour(3))),
	}
	each := make([]backend.State, 2)
	g := backend.Group{Key: "k", Policies: list, Cost: 3, Each: each}
	left := func() time.Duration { return time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)) }
	if left() < time.Minute {
		t.Skip("the day ends during the test")
	}
	require.True(t, ask(t, s, backend.Take, g).Allowed)
	require.InDelta(t, left(), each[0].ResetAfter, float64(10*time.Second))
	require.InDelta(t, time.Hour, each[1].ResetAfter, float64(time.Second))
	d := ask(t, s, backend.Take, g)
	require.False(t, d.Allowed)
	require.InDelta(t, left(), each[0].RetryAfter, float64(10*time.Second))

	// As if it had been set back: to the store's clock the record is idle later.
	h := s.hash(&g)
	day := s.stripes[s.stripeAt(h)].mu.records.find(h.of(s.identityOf(&list[0], "")))
	require.Greater(t, day.until, s.clock.beforeLock())
	require.Less(t, day.until, s.clock.beforeLock()+(25*time.Hour).Microseconds())
}

// TestLeaseOfACalendar: a settlement corrects the period that was charged, and an
// excess counts in the present one.
func TestLeaseOfACalendar(t *testing.T) {
	now := time.Date(2024, 3, 30, 22, 0, 0, 0, time.UTC)
	s := New(&Options{Now: func() time.Time { return now }})
	zone := time.FixedZone("Europe/Berlin", 3600)
	list := []backend.Policy{by("day", algo.Calendar(100, algo.Day(), zone)), by("month", algo.Calendar(1000, algo.Month(31), zone))}
	do := func(op backend.Op, l *backend.Lease) error {
		_, err := layer.Ask(context.Background(), s, backend.Request{
			Op: op, Group: backend.Group{Key: "k", Policies: list, Cost: 40, Lease: l}})
		return err
	}
	used := func() [2]int64 {
		each := make([]backend.State, 2)
		ask(t, s, backend.Peek, backend.Group{Key: "k", Policies: list, Each: each})
		return [2]int64{each[0].Used, each[1].Used}
	}
	first, second := &backend.Lease{ID: backend.LeaseID{1}, Length: 12 * time.Hour}, &backend.Lease{ID: backend.LeaseID{2}, Length: 12 * time.Hour}
	require.NoError(t, do(backend.Reserve, first))
	require.NoError(t, do(backend.Reserve, second))
	require.Equal(t, [2]int64{80, 80}, used())
	first.Actual = []int64{10, 10}
	require.NoError(t, do(backend.Settle, first))
	require.Equal(t, [2]int64{50, 50}, used())
	now = now.Add(time.Hour) // the 31st, in the zone
	require.Equal(t, [2]int64{0, 0}, used())
	second.Actual = []int64{90, 10}
	require.NoError(t, do(backend.Settle, second))
	require.Equal(t, [2]int64{50, 0}, used())
}
