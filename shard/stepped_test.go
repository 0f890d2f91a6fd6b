package shard_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestADenialOfTheFutureIsForgotten: one that was heard before the clock was set
// back is not carried on.
func TestADenialOfTheFutureIsForgotten(t *testing.T) {
	s, h, now := hooking()
	do(t, s, peek("first", one(algo.FixedWindow(algo.PerDay(9)), 2), 1))
	now.Add(3_600_000_000)
	ps := two(algo.SlidingLog(algo.PerSecond(10)), algo.SlidingLog(algo.Per(10, 10*time.Second)), 2)
	each := func(p, q int64) {
		for i, name := range shard.Names("k", 2) {
			r := costing("k", []backend.Policy{{Name: "p", Algorithm: ps[0].Algorithm.Part(int64(i), 2)}, {Name: "q", Algorithm: ps[1].Algorithm.Part(int64(i), 2)}}, p, q)
			r.Sub = name
			require.True(t, do(t, h, r).Allowed)
		}
	}
	each(5, 1)
	require.False(t, do(t, s, costing("k", ps, 5, 1)).Allowed)
	now.Add(-2_500_000) // p's charges are now further ahead than a period: absent
	each(1, 3)          // another process
	p := costing("k", ps, 1, 5)
	p.Op = backend.Peek
	require.False(t, do(t, s, p).Allowed)
	now.Add(1_100_000)
	p = costing("k", ps, 5, 1)
	p.Op = backend.Peek
	require.True(t, do(t, ignorant(h), p).Allowed)
	d := do(t, s, costing("k", ps, 5, 1))
	require.True(t, d.Allowed, "more than a second after all that was heard")
}

// TestBeforeTheBeginning: nor does one stand before the station's first instant.
func TestBeforeTheBeginning(t *testing.T) {
	s, h, now := hooking()
	do(t, s, peek("first", one(algo.FixedWindow(algo.PerDay(9)), 2), 1))
	now.Add(-3_600_000_000)
	ps := one(algo.SlidingLog(algo.Per(10, 10*time.Second)), 2)
	each := func(n int64) {
		for i, name := range shard.Names("k", 2) {
			r := take("k", []backend.Policy{{Name: "p", Algorithm: ps[0].Algorithm.Part(int64(i), 2)}}, n)
			r.Sub = name
			require.True(t, do(t, h, r).Allowed)
		}
	}
	each(3)
	now.Add(5_000_000)
	each(1)
	now.Add(4_500_000)
	require.False(t, do(t, s, peek("k", ps, 5)).Allowed)
	now.Add(600_000) // the three have left
	require.True(t, do(t, ignorant(h), peek("k", ps, 4)).Allowed)
	d := do(t, s, take("k", ps, 4))
	require.True(t, d.Allowed)
}
