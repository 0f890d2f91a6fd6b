package algo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const lentStart int64 = 946_684_800_000_000

// TestRetryBesideLentUnits: a call beside lent units may come again when its cost fits beside
// all of them, or when the first lease ends, whichever is sooner.
func TestRetryBesideLentUnits(t *testing.T) {
	a := TokenBucket(PerSecond(1_000), 100)
	for _, c := range []struct{ used, lent, cost, length, want int64 }{
		{60, 40, 1, 1_000_000, 1_000},      // refilled before the lease ends
		{60, 40, 1, 500, 500},              // after it
		{60, 40, 60, 1_000_000, 60_000},    // the last of what may fit beside the lease
		{60, 40, 61, 1_000_000, 1_000_000}, // never fits beside it
		{0, 100, 1, 1_000_000, 1_000_000},
	} {
		w := make([]int64, a.Words())
		v := a.View(w, lentStart)
		w = a.Take(w, &v, c.used)
		v = a.View(w, lentStart)
		v.Beside = &Lent{Ends: []LentUntil{{lentStart + c.length, c.lent}}}
		require.False(t, a.Fits(&v, c.cost), "%+v", c)
		require.Equal(t, c.want, a.RetryAt(w, &v, c.cost)-lentStart, "%+v", c)
	}
}

// TestLentUnitsDoNotAge: units of a lease that has ended are charged at its last instant,
// however long the lease was.
func TestLentUnitsDoNotAge(t *testing.T) {
	const length = 1_000_000
	for _, a := range []Algorithm{
		TokenBucket(PerSecond(1_000), 500), FixedWindow(PerSecond(500)), SlidingWindow(PerSecond(500)), BucketedWindow(PerSecond(500), 10),
	} {
		w, l := make([]int64, a.Words()), Lent{Ends: []LentUntil{{lentStart + length, 40}}}
		w = l.Fold(&a, w, lentStart+length)
		v := a.View(w, lentStart+length-1)
		require.Equal(t, int64(40), v.Used, "%v", &a)
		require.Empty(t, l.Ends)
	}
}

// A count has few ends, whatever lengths its borrowers have: they are counted in one byte.
func TestLentEndsAreFew(t *testing.T) {
	ends := map[int64]bool{}
	for now := lentStart; now < lentStart+MaxBorrow.Microseconds(); now += 7000 {
		for length := MinBorrow; length <= MaxBorrow; length += time.Millisecond {
			end := LentEnd(now, length.Microseconds(), 0)
			require.LessOrEqual(t, end, now+length.Microseconds())
			require.GreaterOrEqual(t, end, now+length.Microseconds()*3/4)
			if end > lentStart+MaxBorrow.Microseconds() {
				ends[end] = true
			}
		}
	}
	require.Less(t, len(ends), 100)
}
