package rule

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInFlight against a list of leases: slots are held from Hold to Release or to
// their end, whatever lengths and order they have.
func TestInFlight(t *testing.T) {
	type lease struct{ end, id int64 }
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		a := InFlight(1 + r.Int64N(20))
		now, w, held := int64(1e15), make([]int64, a.Words()), []lease(nil)
		for range 300 {
			now += r.Int64N(2) * r.Int64N(20)
			held = slices.DeleteFunc(held, func(l lease) bool { return l.end <= now })
			v := a.View(w, now)
			require.EqualValues(t, len(held), v.Used)
			if fits := a.Fits(&v, 1); r.IntN(3) == 0 && len(held) > 0 {
				i := r.IntN(len(held))
				require.True(t, a.Release(w, held[i].end, held[i].id))
				require.False(t, a.Release(w, held[i].end, held[i].id))
				held = slices.Delete(held, i, i+1)
			} else if fits {
				l := lease{now + 1 + r.Int64N(2)*r.Int64N(200), int64(r.Uint64())}
				w = a.Hold(w, &v, l.end, l.id)
				held = append(held, l)
			} else {
				slices.SortFunc(held, func(x, y lease) int { return int(x.end - y.end) })
				require.Equal(t, held[0].end, a.RetryAt(w, &v, 1))
			}
			last := int64(0)
			for _, l := range held {
				last = max(last, l.end)
			}
			v = a.View(w, now)
			require.Equal(t, last, a.ResetAt(&v))
			require.LessOrEqual(t, len(w), slotHeader+2*4*20)
		}
	}
}

// TestReleaseOfTheOldest: calls that end in the order in which they began move no slot.
func TestReleaseOfTheOldest(t *testing.T) {
	a, now := InFlight(100), int64(1e15)
	w := make([]int64, a.Words())
	for i := range int64(100) {
		v := a.View(w, now)
		w = a.Hold(w, &v, now+1000+i, i)
	}
	slots := slices.Clone(w[slotHeader:])
	for i := range int64(100) {
		require.True(t, a.Release(w, now+1000+i, i))
		require.Equal(t, slots, w[slotHeader:])
	}
}

// TestInFlightOutOfRange: its limit has a range, and it has no period.
func TestInFlightOutOfRange(t *testing.T) {
	for _, n := range []int64{-1, 0, MaxLogLimit + 1} {
		a := InFlight(n)
		require.Error(t, a.Check())
		require.Zero(t, a.Max())
	}
	a := InFlight(20)
	require.NoError(t, a.Check())
	require.Equal(t, "InFlight(20)", a.String())
	require.True(t, a.Kind().Leased())
	require.NotContains(t, Kinds(), KindInFlight)
	w := Widest(a.Identity())
	require.NoError(t, w.Check())
	b := a.Share(1, 4)
	require.EqualValues(t, 5, b.Max())
	b = a.Part(0, 3)
	require.EqualValues(t, 6, b.Max())
}
