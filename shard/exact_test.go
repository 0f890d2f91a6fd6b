package shard_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestWhatIsNotEstimatedIsExact: after a sum a take that passed tells of the
// whole key what a Peek tells, and that it is unused when the last share is.
func TestWhatIsNotEstimatedIsExact(t *testing.T) {
	for _, a := range kinds(algo.PerMinute(60)) {
		s, counts, now := counting(t)
		other := ignorant(counts)
		ps, dice, exact := two(a, algo.TokenBucket(algo.PerMinute(40), 60), 4), rand.New(rand.NewPCG(1, 2)), 0
		for range 5000 {
			each := make([]backend.State, 2)
			r := costing("k", ps, 1+dice.Int64N(3), 1+dice.Int64N(2))
			r.Each = each
			if d := do(t, s, r); d.Allowed && d.Known == backend.Exact {
				exact++
				seen := costing("k", ps, 0, 0)
				seen.Op, seen.Each = backend.Peek, make([]backend.State, 2)
				do(t, other, seen)
				require.Equal(t, seen.Each, each, "%v", &a)
			}
			if dice.IntN(20) == 0 { // another process goes on
				do(t, other, costing("k", ps, 1+dice.Int64N(9), 1))
			}
			now.Add(dice.Int64N(1_000_000))
		}
		require.Greater(t, exact, 20, "%v", &a)
	}
}

// TestRemainingIsWhatPasses, also where sub-keys hold counts of another K or
// another limit: a Peek that allows says how many units pass.
func TestRemainingIsWhatPasses(t *testing.T) {
	for kind, a := range kinds(algo.PerDay(480)) {
		for _, ks := range [][]int{{4, 8}, {8, 4}, {16, 64}, {3, 5}, {2, 16}} {
			s, _, _ := counting(t)
			for range 400 {
				require.True(t, do(t, s, take("k", one(a, ks[0]), 1)).Allowed)
			}
			for _, limit := range []int64{480, 240, 960} {
				ps := one(kinds(algo.PerDay(limit))[kind], ks[1])
				d, passed := do(t, s, peek("k", ps, 1)), int64(0)
				require.Equal(t, d.Remaining > 0, d.Allowed, "%v %v: %+v", &a, ks, d)
				for do(t, s, take("k", ps, 1)).Allowed {
					passed++
				}
				require.Equal(t, d.Remaining, passed, "%v %v to %d", &a, ks, limit)
			}
		}
	}
}

// TestRunTellsWhatItTook: what a run UpTo was charged is used, also after a sum.
func TestRunTellsWhatItTook(t *testing.T) {
	s, _ := over(t)
	r := take("k", one(algo.FixedWindow(algo.PerDay(40)), 4), 1)
	r.Run, r.UpTo = 10, true
	d := do(t, s, r)
	require.Equal(t, []int64{10, 10, 30}, []int64{d.Passed, d.Used, d.Remaining})
	require.Equal(t, backend.Estimated, d.Known)
}

// TestShadowOfAShareIsEstimated: one share decides a shadow, also if the other numbers are exact.
func TestShadowOfAShareIsEstimated(t *testing.T) {
	list := two(algo.FixedWindow(algo.PerDay(40)), algo.FixedWindow(algo.PerDay(24)), 4)
	list.policies[1].Shadow = true
	s, _ := over(t)
	r := take("k", list, 1)
	r.Each = make([]backend.State, 2)
	require.Equal(t, backend.Exact, do(t, s, r).Known)
	require.Equal(t, []backend.Known{backend.Exact, backend.Estimated}, []backend.Known{r.Each[0].Known, r.Each[1].Known})
}

// TestRunTellsItsShadows: of a run UpTo a shadow is charged what each share has room for. Its
// state has the sum, and a RetryAfter if that is less than passed.
func TestRunTellsItsShadows(t *testing.T) {
	list := two(algo.FixedWindow(algo.PerDay(40)), algo.FixedWindow(algo.PerDay(24)), 4)
	list.policies[1].Shadow = true
	for calls, charged := range map[int64]int32{4: 4, 40: 24, 50: 24} {
		s, _ := over(t)
		r := take("k", list, 1)
		r.Run, r.UpTo, r.Each = calls, true, make([]backend.State, 2)
		d := do(t, s, r)
		require.Equal(t, min(calls, 40), d.Passed)
		require.EqualValues(t, d.Passed, r.Each[0].Passed)
		require.Equal(t, charged, r.Each[1].Passed, "of a run of %d", calls)
		require.Zero(t, r.Each[0].RetryAfter)
		require.Equal(t, calls > 24, r.Each[1].RetryAfter > 0, "of a run of %d", calls)
	}
}
