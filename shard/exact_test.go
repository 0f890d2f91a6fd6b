package shard_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestWhatIsNotEstimatedIsExact: after a sum a take that passed tells of the
// whole key what a Peek tells, and that it is as new when the last share is.
func TestWhatIsNotEstimatedIsExact(t *testing.T) {
	for _, a := range kinds(algo.PerMinute(60)) {
		s, counts, now := counting(t)
		ps, dice, exact := two(a, algo.TokenBucket(algo.PerMinute(40), 60), 4), rand.New(rand.NewPCG(1, 2)), 0
		for range 5000 {
			each := make([]backend.State, 2)
			r := costing("k", ps, 1+dice.Int64N(3), 1+dice.Int64N(2))
			r.Each = each
			if d := do(t, s, r); d.Allowed && !d.Estimated {
				exact++
				seen := costing("k", ps, 0, 0)
				seen.Op, seen.Each = backend.Peek, make([]backend.State, 2)
				do(t, ignorant(counts), seen)
				require.Equal(t, seen.Each, each, "%v", &a)
			}
			if dice.IntN(20) == 0 { // another process goes on
				do(t, ignorant(counts), costing("k", ps, 1+dice.Int64N(9), 1))
			}
			now.Add(dice.Int64N(1_000_000))
		}
		require.Greater(t, exact, 20, "%v", &a)
	}
}
