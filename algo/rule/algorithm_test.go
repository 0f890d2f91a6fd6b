package rule

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steps returns short, or long where tests run at full length.
func steps(short, long int) int {
	if os.Getenv("HEADGATE_LONG") != "" {
		return long
	}
	return short
}

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

// TestRate: a float becomes the simplest limit that is as good, and what no limit can be, the
// zero Limit.
func TestRate(t *testing.T) {
	for rate, want := range map[float64]Limit{
		1: PerSecond(1), 2.5: Per(5, 2*time.Second), 0.1: Per(1, 10*time.Second), 1.0 / 3: Per(1, 3*time.Second),
		100.0 / 60: Per(5, 3*time.Second), 700_000.5: Per(1_400_001, 2*time.Second), MaxLimit: PerSecond(MaxLimit),
		1 / (30 * 86400.0): Per(1, 30*24*time.Hour), 1e9 / (30 * 86400.0): Per(31_250, 81*time.Second),
		1 / MaxPeriod.Seconds(): Per(1, MaxPeriod),
		0:                       {}, -1: {}, MaxLimit + 1: {}, 1e300: {}, 1e-300: {}, 0.9 / MaxPeriod.Seconds(): {}, math.NaN(): {}, math.Inf(1): {}, math.Inf(-1): {},
	} {
		require.Equal(t, want, Rate(rate), rate)
	}
	for range steps(10_000, 1_000_000) {
		rate := math.Exp(math.Log(1/MaxPeriod.Seconds()) + rand.Float64()*math.Log(MaxLimit*MaxPeriod.Seconds()))
		l := Rate(rate)
		a := TokenBucket(l, 1)
		require.NoError(t, a.Check(), "Rate(%v)", rate)
		require.InEpsilon(t, rate, float64(l.Events)/l.Period.Seconds(), 1e-7, "Rate(%v)", rate)
	}
}
