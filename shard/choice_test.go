package shard

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

func drawing(limit int64, shares int) (*hotKey, *backend.Group) {
	ps := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(limit))}}
	return newHotKey("k", ps, shares, noDenials), &backend.Group{Key: "k", Policies: ps, Shards: shares, Cost: 1}
}

// TestTurns: concurrent calls use one sub-key for a turn, which ends by its calls and
// by time.
func TestTurns(t *testing.T) {
	k, g := drawing(1<<30, 16)
	k.calls.Store(64)
	first := k.draw(g, 0)
	for range turnCalls * 63 {
		require.Equal(t, first, k.draw(g, turnFor-1))
	}
	second := k.draw(g, turnFor-1)
	require.NotEqual(t, first, second)
	require.Equal(t, second, k.draw(g, 2*turnFor-2))
	require.NotEqual(t, second, k.draw(g, 2*turnFor-1))
}

// TestLoneCallsSpread evenly over every third of the slots, from the first calls on.
func TestLoneCallsSpread(t *testing.T) {
	for _, shares := range []int{3, 16, 48, 1000} {
		k, g := drawing(1<<30, shares)
		k.calls.Store(1)
		thirds := [3]int{}
		for n := 1; n <= 300; n++ {
			i := k.draw(g, 0)
			thirds[i*3/shares]++
			if shares%3 == 0 {
				require.InDelta(t, float64(n)/3, thirds[i*3/shares], 3, "%d shares", shares)
			}
		}
	}
}

// TestSharesAreDrawnByRoom: those with less than half of the mean are left out while
// others have more, and a share without room is never drawn.
func TestSharesAreDrawnByRoom(t *testing.T) {
	k, g := drawing(1600, 16)
	for i := range 16 {
		k.see(i, 0, []int64{0, 10, 100, 100}[i%4])
	}
	drawn := [4]int{}
	for range 100 {
		drawn[k.draw(g, 0)%4]++
	}
	require.Zero(t, drawn[0]+drawn[1])
	k, g = drawing(16, 16)
	for range 16 {
		i := k.draw(g, 0)
		require.GreaterOrEqual(t, i, 0)
		k.claim(i, g)
	}
	require.Equal(t, -1, k.draw(g, 0), "each unit is claimed once")
}
