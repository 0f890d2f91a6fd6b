package shard_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// goldenNames are those of two keys, four each.
const goldenNames = "4BOOA 4AEDF 4CFGM 4@LLJ 4BCIA 4AIBF 4CJAM 4@@JJ"

// thirds are what three primaries serve that divide the slots evenly.
var thirds = []int{0, slot.Count / 3, slot.Count * 2 / 3, slot.Count}

// skewed is an uneven division.
var skewed = []int{0, 2000, 9000, slot.Count}

// held returns how many of a key's sub-keys each node has.
func held(key string, k int, bounds []int) []int {
	of := make([]int, len(bounds)-1)
	for _, name := range shard.Names(key, k) {
		s := slot.Of(slot.Tag(key, name))
		for n := range of {
			if bounds[n] <= s && s < bounds[n+1] {
				of[n]++
			}
		}
	}
	return of
}

// busiest returns the most that any of 10,000 keys has on a node, as a
// multiple of that node's part of the slots.
func busiest(k int, bounds []int) (worst float64) {
	for i := range 10_000 {
		for n, have := range held(keyOf(i), k, bounds) {
			worst = max(worst, float64(have)*slot.Count/float64(k*(bounds[n+1]-bounds[n])))
		}
	}
	return worst
}

// TestSlotsLieEvenly for every key: no node has more of its sub-keys than
// points so far apart can fall on its slots.
func TestSlotsLieEvenly(t *testing.T) {
	redistest.Plain(t)
	for _, k := range []int{2, 4, 8, 16, 64} {
		for _, bounds := range [][]int{thirds, skewed} {
			for i := range redistest.Steps(1_000, 10_000) {
				for n, have := range held(keyOf(i), k, bounds) {
					require.LessOrEqual(t, have, (bounds[n+1]-bounds[n]-1)*k/slot.Count+1, "%s, K = %d", keyOf(i), k)
				}
			}
		}
	}
	require.LessOrEqual(t, busiest(16, thirds), 1.13)
	require.LessOrEqual(t, busiest(64, thirds), 1.05)
}

// keyOf makes keys in clear, and some that are hashed.
func keyOf(i int) string {
	if i%10 == 0 {
		return fmt.Sprintf("{tenant} %d", i)
	}
	return "tenant:" + strconv.Itoa(i)
}

// TestNamesAreThoseOfEveryProcess: what another release computes must be the
// same, or it would count elsewhere.
func TestNamesAreThoseOfEveryProcess(t *testing.T) {
	require.Equal(t, goldenNames, strings.Join(append(shard.Names("tenant:42", 4), shard.Names("{tenant} 42", 4)...), " "))
	c := map[string]bool{}
	for _, n := range shard.Names("tenant:42", 1024) {
		c[n] = true
	}
	require.Len(t, c, 1024)
	for _, n := range shard.Names("tenant:42", 8) {
		require.NotContains(t, shard.Names("tenant:42", 16), n, "shares of another K count apart")
	}
}

// uneven gives the first primary 2000 slots, the second 7000, and the rest to
// the third. The slots are empty.
func uneven(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	owners := []*redistest.Server{c.Primary(0), c.Primary(8000), c.Primary(16383)}
	for _, n := range owners {
		require.NoError(t, n.Client(t).FlushAll(ctx).Err())
	}
	var ids []string
	for _, n := range owners {
		id, err := n.Client(t).Do(ctx, "CLUSTER", "MYID").Text()
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for _, n := range owners {
		pipe := n.Client(t).Pipeline()
		for to := range ids {
			for s := skewed[to]; s < skewed[to+1]; s++ {
				pipe.Do(ctx, "CLUSTER", "SETSLOT", s, "NODE", ids[to])
			}
		}
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
	}
	c.Settle(t)
}

// fractions returns each node's part of the slots, in the order of c.Nodes.
func fractions(t *testing.T, c *redistest.Cluster) []float64 {
	parts := make([]float64, len(c.Nodes()))
	for n := range skewed[:3] {
		for i, s := range c.Nodes() {
			if s == c.Primary(skewed[n]) {
				parts[i] = float64(skewed[n+1]-skewed[n]) / slot.Count
			}
		}
	}
	return parts
}
