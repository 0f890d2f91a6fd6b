package rule

import (
	"math/big"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// wholes are limits that k divides and such that it doesn't.
func wholes(k int64) []Limit {
	return []Limit{
		PerMinute(k), PerMinute(k + 1), PerHour(2*k - 1), PerDay(10_000), Per(99_991, 37*time.Hour+time.Microsecond),
		Per(1_000_000, time.Millisecond), Per(1_000_000, MaxPeriod), Per(999_983, MaxPeriod-time.Microsecond),
	}
}

// TestPartsSumExactly: no unit is lost and none is made, and a part is what the
// whole is, only smaller.
func TestPartsSumExactly(t *testing.T) {
	redistest.Plain(t)
	for _, k := range []int64{2, 3, 4, 7, 8, 16, 64, 1000, 1024} {
		for _, l := range wholes(k) {
			if l.Events < k {
				continue
			}
			for _, a := range []Algorithm{FixedWindow(l), SlidingWindow(l), BucketedWindow(l, 10), SlidingLog(l), TokenBucket(l, l.Events)} {
				sum, least := int64(0), a.Part(0, k)
				for i := range k {
					p := a.Part(i, k)
					if p.Check() != nil { // a rate that can't be kept
						require.Equal(t, KindTokenBucket, a.Kind(), "%v", &a)
						require.Greater(t, l.Period, MaxPeriod/time.Duration(k), "%v", &a)
						sum = a.Max()
						break
					}
					sum += p.Max()
					require.GreaterOrEqual(t, p.Max(), least.Max())
					require.LessOrEqual(t, p.Max(), least.Max()+1)
					require.Equal(t, a.Kind(), p.Kind())
				}
				require.Equal(t, a.Max(), sum, "%d parts of %v", k, &a)
			}
		}
	}
}

// TestPartOfARate: exactly the k-th of it, reduced where the period would be
// too long, refused where it can't be.
func TestPartOfARate(t *testing.T) {
	for _, k := range []int64{2, 7, 16, 1024} {
		for _, l := range wholes(k) {
			a := TokenBucket(l, 5000)
			p := a.Part(1, k)
			if p.Check() != nil {
				g := gcd(l.Events, l.Period.Microseconds()*k)
				require.Greater(t, l.Period.Microseconds()*k/g, MaxPeriod.Microseconds(), "%v in %d", l, k)
				continue
			}
			got := big.NewRat(p.Limit().Events, p.Limit().Period.Microseconds())
			want := big.NewRat(l.Events, l.Period.Microseconds()*k)
			require.Zero(t, want.Cmp(got), "%v in %d gave %v", l, k, p.Limit())
		}
	}
	refused := TokenBucket(Per(7, MaxPeriod), 5000)
	refused = refused.Part(0, 2)
	require.Error(t, refused.Check())
}

// TestTooManyParts: a part below one unit is refused and grants nothing.
func TestTooManyParts(t *testing.T) {
	a := FixedWindow(PerMinute(5))
	p := a.Part(0, 6)
	require.Error(t, p.Check())
	require.Zero(t, p.Max())
}
