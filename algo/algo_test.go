package algo

import (
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
