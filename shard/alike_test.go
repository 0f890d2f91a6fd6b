package shard_test

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestSharesAreSpentAlike: no share is spent, and no sum read, before nearly
// all of the limit has passed, though nobody counts for all shares.
func TestSharesAreSpentAlike(t *testing.T) {
	redistest.Plain(t)
	const limit = 10_000
	for i := range 20 {
		s, c, _ := counting(t)
		ps, n := one(algo.FixedWindow(algo.PerDay(limit)), 16), int64(0)
		do(t, s, peek(fmt.Sprint(i), ps, 1)) // the sum before the first take
		c.asked.Store(0)
		for n < limit && c.asked.Load() == n { // one a call
			require.True(t, do(t, s, take(fmt.Sprint(i), ps, 1)).Allowed)
			n++
		}
		require.GreaterOrEqual(t, n, int64(limit*99/100))
	}
}

// TestANewWindowIsSpreadAlike though the shares of the last were left with
// more and less.
func TestANewWindowIsSpreadAlike(t *testing.T) {
	s, _, now := counting(t)
	ps := one(algo.FixedWindow(algo.PerMinute(1600)), 16)
	do(t, s, peek("k", ps, 1)) // the sum before the first take
	for range 5 {
		for range 1570 {
			require.True(t, do(t, s, take("k", ps, 1)).Allowed)
		}
		require.Zero(t, s.Stats().Sums)
		now.Add(60_000_000)
	}
}
