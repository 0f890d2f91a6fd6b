package algo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIdentity holds an identity to what it may depend on: the kind, the
// period, and the number of buckets.
func TestIdentity(t *testing.T) {
	minute, second := time.Minute.Microseconds(), time.Second.Microseconds()
	for _, c := range []struct {
		a    Algorithm
		want Identity
	}{
		{FixedWindow(PerMinute(600)), Identity{KindFixedWindow, minute, 0}},
		{FixedWindow(PerMinute(5)), Identity{KindFixedWindow, minute, 0}},
		{FixedWindow(PerSecond(10)), Identity{KindFixedWindow, second, 0}},
		{SlidingWindow(PerMinute(600)), Identity{KindSlidingWindow, minute, 0}},
		{SlidingLog(PerMinute(600)), Identity{KindSlidingLog, minute, 0}},
		{BucketedWindow(PerMinute(600), 10), Identity{KindBucketedWindow, minute, 10}},
		{BucketedWindow(PerMinute(5), 7), Identity{KindBucketedWindow, minute, 7}},
		{TokenBucket(PerMinute(600), 600), Identity{KindTokenBucket, 0, 0}},
		{TokenBucket(PerSecond(10), 1), Identity{KindTokenBucket, 0, 0}},
	} {
		require.Equal(t, c.want, c.a.Identity(), "%v", &c.a)
		for _, part := range []Algorithm{c.a.Part(1, 2), c.a.Share(1, 3)} {
			require.Equal(t, c.want, part.Identity(), "a part of %v", &c.a)
		}
	}
}
