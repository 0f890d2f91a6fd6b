package rule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIdentity holds an identity to what it may depend on: the kind, the
// period, the number of buckets, and the calendar.
func TestIdentity(t *testing.T) {
	minute, second := time.Minute.Microseconds(), time.Second.Microseconds()
	for _, c := range []struct {
		a    Algorithm
		want Identity
	}{
		{FixedWindow(PerMinute(600)), Identity{Kind: KindFixedWindow, Period: minute}},
		{FixedWindow(PerMinute(5)), Identity{Kind: KindFixedWindow, Period: minute}},
		{FixedWindow(PerSecond(10)), Identity{Kind: KindFixedWindow, Period: second}},
		{SlidingWindow(PerMinute(600)), Identity{Kind: KindSlidingWindow, Period: minute}},
		{SlidingLog(PerMinute(600)), Identity{Kind: KindSlidingLog, Period: minute}},
		{BucketedWindow(PerMinute(600), 10), Identity{Kind: KindBucketedWindow, Period: minute, Buckets: 10}},
		{BucketedWindow(PerMinute(5), 7), Identity{Kind: KindBucketedWindow, Period: minute, Buckets: 7}},
		{TokenBucket(PerMinute(600), 600), Identity{Kind: KindTokenBucket}},
		{TokenBucket(PerSecond(10), 1), Identity{Kind: KindTokenBucket}},
		{Calendar(10, Day(), time.UTC), Identity{Kind: KindCalendar, Label: "d/UTC"}},
		{Calendar(5, Day(), time.UTC), Identity{Kind: KindCalendar, Label: "d/UTC"}},
		{Calendar(10, Week(time.Monday), time.FixedZone("Europe/Berlin", 3600)), Identity{Kind: KindCalendar, Label: "w1/Europe/Berlin"}},
		{Calendar(10, Month(15), time.UTC), Identity{Kind: KindCalendar, Label: "m15/UTC"}},
	} {
		require.Equal(t, c.want, c.a.Identity(), "%v", &c.a)
		for _, part := range []Algorithm{c.a.Part(1, 2), c.a.Share(1, 3)} {
			require.Equal(t, c.want, part.Identity(), "a part of %v", &c.a)
		}
	}
}
