package rule

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

const lentStart int64 = 946_684_800_000_000

// TestRetryBesideLentUnits: a call beside lent units may come again when its cost fits beside
// all of them, or when the first are due, whichever is sooner.
func TestRetryBesideLentUnits(t *testing.T) {
	a := TokenBucket(PerSecond(1_000), 100)
	for _, c := range []struct{ used, lent, cost, length, want int64 }{
		{60, 40, 1, 1_000_000, 1_000},      // refilled before the loan ends
		{60, 40, 1, 500, 500},              // after it
		{60, 40, 60, 1_000_000, 60_000},    // the last of what may fit beside the loan
		{60, 40, 61, 1_000_000, 1_000_000}, // never fits beside it
		{0, 100, 1, 1_000_000, 1_000_000},
	} {
		w := make([]int64, a.Words())
		v := a.View(w, lentStart)
		w = a.Take(w, &v, c.used)
		v = a.View(w, lentStart)
		v.Beside = &Lent{Ends: []LentUntil{{End: lentStart + 3*c.length, Due: lentStart + c.length, Units: c.lent}}}
		require.False(t, a.Fits(&v, c.cost), "%+v", c)
		require.Equal(t, c.want, a.RetryAt(w, &v, c.cost)-lentStart, "%+v", c)
	}
}

// TestLentUnitsDoNotAge: units of a loan that has ended are charged at its last instant,
// however long the loan was.
func TestLentUnitsDoNotAge(t *testing.T) {
	const length = 1_000_000
	for _, a := range []Algorithm{
		TokenBucket(PerSecond(1_000), 500), FixedWindow(PerSecond(500)), SlidingWindow(PerSecond(500)), BucketedWindow(PerSecond(500), 10),
	} {
		w, l := make([]int64, a.Words()), Lent{Ends: []LentUntil{{End: lentStart + length, Units: 40}}}
		w = l.Fold(&a, w, lentStart+length)
		v := a.View(w, lentStart+length-1)
		require.Equal(t, int64(40), v.Used, "%v", &a)
		require.Empty(t, l.Ends)
	}
}

// A count has few ends, whatever lengths its borrowers have: they are counted in one byte.
func TestLentEndsAreFew(t *testing.T) {
	redistest.Plain(t)
	ends, lasts := map[int64]bool{}, MaxTerms*MaxBorrow.Microseconds()
	for now := lentStart; now < lentStart+lasts; now += 19_000 {
		for term := MinBorrow; term <= MaxBorrow; term += time.Millisecond {
			u := LentEnd(now, term.Microseconds(), 0)
			require.LessOrEqual(t, u.Due, now+term.Microseconds())
			require.GreaterOrEqual(t, u.Due, now+term.Microseconds()*3/4)
			require.Equal(t, 2*term.Microseconds(), u.End-u.Due, "the store keeps a loan for two more terms")
			if u.End > lentStart+lasts {
				ends[u.End] = true
			}
		}
	}
	require.Less(t, len(ends), 256)
	t.Logf("%d ends", len(ends))
}

// TestLateLoans: of loans that are due and not settled it is their end that is awaited. Others
// may come back sooner.
func TestLateLoans(t *testing.T) {
	a := FixedWindow(PerDay(100))
	w := make([]int64, a.Words())
	for _, c := range []struct {
		ends []LentUntil
		want int64
	}{
		{[]LentUntil{{lentStart + 30, lentStart + 10, 100}}, 10},
		{[]LentUntil{{lentStart + 20, lentStart, 100}}, 20},
		{[]LentUntil{{lentStart + 20, lentStart, 50}, {lentStart + 35, lentStart + 15, 50}}, 15},
		{[]LentUntil{{lentStart + 20, lentStart, 50}, {lentStart + 45, lentStart + 25, 50}}, 20},
	} {
		v := a.View(w, lentStart)
		v.Beside = &Lent{Ends: c.ends}
		require.Equal(t, c.want, a.RetryAt(w, &v, 1)-lentStart, "%+v", c)
	}
}
