package headgate_test

import (
	"runtime"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

func limitedBy(t testing.TB, algorithms ...algo.Algorithm) *headgate.Limiter {
	policies := []headgate.Policy{}
	for i, a := range algorithms {
		policies = append(policies, headgate.Policy{Name: string(rune('a' + i)), Algorithm: a, OnFailure: headgate.FailOpen})
	}
	l, err := headgate.New(memory.New(nil), policies, nil)
	require.NoError(t, err)
	return l
}

func eachMinute(n int64) headgate.PolicyLimit { return headgate.PolicyLimit{Limit: algo.PerMinute(n)} }

// TestWithLimits: a limit that comes with the call decides on the same count, and its limiter
// is kept.
func TestWithLimits(t *testing.T) {
	l := limitedBy(t, algo.FixedWindow(algo.PerMinute(2)), algo.TokenBucket(algo.PerMinute(60), 3))
	three, err := l.WithLimits(eachMinute(3), headgate.PolicyLimit{})
	require.NoError(t, err)
	for i := range 4 {
		d, err := three.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, i < 3, d.Allowed)
	}
	d, err := l.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, d.Allowed, "the count is one")
	again, err := l.WithLimits(eachMinute(3), headgate.PolicyLimit{})
	require.NoError(t, err)
	require.Same(t, three, again)

	both, err := l.WithLimits(headgate.PolicyLimit{Limit: algo.Limit{Events: 7}}, headgate.PolicyLimit{Limit: algo.PerHour(9), Burst: 5})
	require.NoError(t, err)
	got := both.Policies()
	require.Equal(t, "FixedWindow(7 per 1m0s)", got[0].Algorithm.String())
	require.Equal(t, "TokenBucket(9 per 1h0m0s, burst 5)", got[1].Algorithm.String())
	equal, err := l.WithLimits(headgate.PolicyLimit{}, eachMinute(9))
	require.NoError(t, err)
	require.EqualValues(t, 9, equal.Policies()[1].Algorithm.Max(), "a burst of 0 is the limit")
}

// TestWithLimitsRefuses, and keeps nothing of it.
func TestWithLimitsRefuses(t *testing.T) {
	l := limitedBy(t, algo.FixedWindow(algo.PerMinute(2)))
	for what, limits := range map[string][]headgate.PolicyLimit{
		"limits": {},
		"limit":  {eachMinute(-1)},
		"burst":  {{Limit: algo.PerMinute(1), Burst: 1}},
	} {
		for range 2 {
			_, err := l.WithLimits(limits...)
			var invalid *headgate.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, what, invalid.What)
		}
	}
	_, err := (&headgate.Limiter{}).WithLimits()
	require.Error(t, err)
}

// TestWithLimitsIsBounded: limits that clients choose leave at most 1,024 limiters.
func TestWithLimitsIsBounded(t *testing.T) {
	l := limitedBy(t, algo.FixedWindow(algo.PerMinute(2)))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range int64(100_000) {
		made, err := l.WithLimits(eachMinute(1 + n))
		if err != nil || made.Policies()[0].Algorithm.Limit() != algo.PerMinute(1+n) {
			t.Fatal(made.Policies(), err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(2<<20))
	runtime.KeepAlive(l)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = l.WithLimits(eachMinute(100_000)) }))
}

// BenchmarkWithLimits is a limit that was seen before.
func BenchmarkWithLimits(b *testing.B) {
	one := limitedBy(b, algo.FixedWindow(algo.PerMinute(2)))
	two := limitedBy(b, algo.FixedWindow(algo.PerMinute(2)), algo.TokenBucket(algo.PerMinute(2), 2))
	b.Run("one policy", func(b *testing.B) {
		b.ReportAllocs()
		for n := int64(0); b.Loop(); n++ {
			_, _ = one.WithLimits(eachMinute(100 + n%7))
		}
	})
	b.Run("two policies", func(b *testing.B) {
		b.ReportAllocs()
		for n := int64(0); b.Loop(); n++ {
			_, _ = two.WithLimits(eachMinute(100+n%7), eachMinute(10+n%7))
		}
	})
}
