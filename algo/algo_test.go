package algo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnsoundGrantsNothing: an algorithm that Check refuses panics nowhere.
func TestUnsoundGrantsNothing(t *testing.T) {
	for _, a := range []Algorithm{{}, FixedWindow(Limit{}), SlidingLog(Per(1, 100*time.Nanosecond)), TokenBucket(PerSecond(-1), 1<<62), BucketedWindow(PerSecond(1), 0)} {
		require.Error(t, a.Check())
		require.Zero(t, a.Max())
		require.Zero(t, a.Worst(time.Second))
		require.NotEmpty(t, a.String())
	}
	a := FixedWindow(PerSecond(5))
	require.Zero(t, a.Worst(-time.Minute))
	require.EqualValues(t, 10, a.Worst(time.Second))
}

// TestShares never sum to more than the whole.
func TestShares(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow(PerSecond(100)), TokenBucket(PerSecond(100), 50), BucketedWindow(PerMinute(100), 7), SlidingLog(PerMinute(99)), SlidingWindow(PerMinute(7))} {
		for n := int64(1); n < 120; n++ {
			s := a.Share(1, n)
			require.Equal(t, a.Kind(), s.Kind())
			require.LessOrEqual(t, s.Max()*n, a.Max())
			require.Equal(t, s.Max() == 0, s.Check() != nil)
		}
	}
}

// TestTry: what looks, takes and tells at once, tells and leaves what one after
// the other do, also of words ahead of now, or of another limit.
func TestTry(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	passed := 0
	for range 200_000 {
		l := Per(1+r.Int64N(40), MinPeriod+time.Duration(r.Int64N(5_000_000))*time.Microsecond)
		a := [...]Algorithm{FixedWindow(l), SlidingWindow(l), TokenBucket(l, 1+r.Int64N(40))}[r.IntN(3)]
		now, n := int64(1e15)+r.Int64N(1e9), 1+r.Int64N(a.Max())
		w := words(r, &a, now)
		tried := slices.Clone(w)
		at, used, retryAt, resetAt := a.Try(tried, now, n)

		now = max(now, a.Newest(w))
		v := a.View(w, now)
		if a.Fits(&v, n) {
			w = a.Take(w, &v, n)
			require.Zero(t, retryAt)
			passed++
		} else {
			require.Equal(t, a.RetryAt(w, &v, n), retryAt)
		}
		require.Equal(t, w, tried)
		require.Equal(t, []int64{now, v.Used, a.ResetAt(&v)}, []int64{at, used, resetAt}, "%v of %v", n, a.String())
	}
	require.Greater(t, passed, 50_000)
	require.Less(t, passed, 150_000)
}

// words are those of a key that was called around now, or never.
func words(r *rand.Rand, a *Algorithm, now int64) []int64 {
	near := func() int64 { return now - r.Int64N(12_000_000) + 6_000_000 }
	switch {
	case r.IntN(8) == 0:
		return make([]int64, a.Words())
	case a.Kind() == KindTokenBucket:
		return []int64{r.Int64N(50 << 20), near()}
	case a.Kind() == KindSlidingWindow:
		return []int64{near(), r.Int64N(50), r.Int64N(50)}
	}
	return []int64{near(), r.Int64N(50)}
}
