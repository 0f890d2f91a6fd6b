package oracle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/oracle"
)

// start is a window boundary of every period in these tests.
const start = 1_745_000_000_000_000 / 10_000_000 * 10_000_000

const second = 1_000_000

type at struct{ us, units int64 }

func judge(a algo.Algorithm, charges ...at) error {
	o := oracle.New(a)
	for _, c := range charges {
		o.Add(start+c.us, c.units)
	}
	return o.Check()
}

// Each kind at its very worst, and what one unit more is.
var sequences = []struct {
	name  string
	a     algo.Algorithm
	clean []at
	more  at
	want  oracle.BrokenError
}{
	{
		"FixedWindow", algo.FixedWindow(algo.Per(5, 10*time.Second)),
		[]at{{10*second - 1, 5}, {10 * second, 5}, {20 * second, 5}}, at{15 * second, 1},
		oracle.BrokenError{From: start + 5*second + 1, To: start + 15*second, Held: 11, Bound: 10},
	},
	{
		"FixedWindow at one instant", algo.FixedWindow(algo.Per(5, 10*time.Second)),
		[]at{{3 * second, 3}, {3 * second, 2}}, at{3 * second, 1},
		oracle.BrokenError{From: start + 3*second, To: start + 3*second, Held: 6, Bound: 5},
	},
	{
		"SlidingWindow", algo.SlidingWindow(algo.Per(5, 10*time.Second)),
		[]at{{1 * second, 5}, {9 * second, 5}, {11 * second, 5}}, at{18 * second, 1},
		oracle.BrokenError{From: start + 8*second + 1, To: start + 18*second, Held: 11, Bound: 10},
	},
	{
		"BucketedWindow", algo.BucketedWindow(algo.Per(5, 10*time.Second), 10),
		[]at{{0, 2}, {5 * second, 3}, {10 * second, 2}, {15 * second, 3}}, at{12 * second, 1},
		oracle.BrokenError{From: start + 2*second + 1, To: start + 12*second, Held: 6, Bound: 5},
	},
	{
		"SlidingLog", algo.SlidingLog(algo.Per(5, 10*time.Second)),
		[]at{{0, 5}, {10 * second, 5}}, at{10*second - 1, 1},
		oracle.BrokenError{From: start, To: start + 10*second - 1, Held: 6, Bound: 5},
	},
	{
		"TokenBucket", algo.TokenBucket(algo.Per(5, 10*time.Second), 5),
		[]at{{0, 5}, {2 * second, 1}, {5 * second, 1}, {6 * second, 1}}, at{7 * second, 1},
		oracle.BrokenError{From: start, To: start + 7*second, Held: 9, Bound: 8},
	},
	{
		"TokenBucket, a microsecond early", algo.TokenBucket(algo.PerSecond(7), 1),
		[]at{{0, 1}, {142_858, 1}}, at{2*142_858 - 2, 1},
		oracle.BrokenError{From: start + 142_858, To: start + 2*142_858 - 2, Held: 2, Bound: 1},
	},
	{
		"TokenBucket, the largest numbers", algo.TokenBucket(algo.Per(algo.MaxLimit, algo.MaxPeriod), algo.MaxLimit),
		[]at{{0, algo.MaxLimit}, {400 * 86400 * second, algo.MaxLimit}}, at{399 * 86400 * second, 5368710},
		oracle.BrokenError{From: start, To: start + 400*86400*second, Held: 2*algo.MaxLimit + 5368710, Bound: 2 * algo.MaxLimit},
	},
}

func TestTheWorstIsClean(t *testing.T) {
	for _, s := range sequences {
		t.Run(s.name, func(t *testing.T) { require.NoError(t, judge(s.a, s.clean...)) })
	}
}

func TestOneUnitMoreIsCaught(t *testing.T) {
	for _, s := range sequences {
		t.Run(s.name, func(t *testing.T) {
			err := judge(s.a, append([]at{s.more}, s.clean...)...) // out of order too
			var broken *oracle.BrokenError
			require.True(t, errors.As(err, &broken), "%v", err)
			s.want.Algorithm = s.a.String()
			require.Equal(t, s.want, *broken)
			require.Contains(t, err.Error(), s.a.String())
		})
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	a := algo.SlidingLog(algo.Per(2, 10*time.Second))
	require.NoError(t, judge(a, at{20 * second, 1}, at{0, 1}, at{10 * second, 1}, at{5 * second, 1}))
	require.Error(t, judge(a, at{20 * second, 1}, at{0, 1}, at{9 * second, 1}, at{5 * second, 1}))
}

func TestNothingIsClean(t *testing.T) {
	require.NoError(t, judge(algo.FixedWindow(algo.PerSecond(1))))
	require.NoError(t, judge(algo.TokenBucket(algo.PerSecond(1), 1)))
}

// The recursion against its definition: every pair of instants.
func TestBucketFindsWhatEveryPairFinds(t *testing.T) {
	const rate, burst = 3, 4 // a second
	a := algo.TokenBucket(algo.PerSecond(rate), burst)
	seed := uint64(1)
	next := func(n uint64) int64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int64(seed >> 33 % n)
	}
	broken := 0
	for range 2000 {
		charges := make([]at, 6)
		for i := range charges {
			charges[i] = at{next(40) * 100_000, 1 + next(3)}
		}
		want := pairsHold(charges, rate, burst)
		if !want {
			broken++
		}
		require.Equal(t, want, judge(a, charges...) == nil, "%v", charges)
	}
	require.Greater(t, broken, 200)
	require.Less(t, broken, 1800)
}

func pairsHold(charges []at, rate, burst int64) bool {
	for _, from := range charges {
		for _, to := range charges {
			held := int64(0)
			for _, c := range charges {
				if from.us <= c.us && c.us <= to.us {
					held += c.units
				}
			}
			if from.us <= to.us && held*second > burst*second+rate*(to.us-from.us) {
				return false
			}
		}
	}
	return true
}
