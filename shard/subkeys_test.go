package shard

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestShareIsThePartsOwn: the number of units of a share is its algorithm's.
func TestShareIsThePartsOwn(t *testing.T) {
	for _, n := range []int64{2, 7, 1000, 1023, algo.MaxLogLimit, algo.MaxLimit} {
		for _, k := range []int{2, 3, 7, 16, 1000, MaxShards} {
			ps := []backend.Policy{
				{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(n))},
				{Name: "b", Algorithm: algo.TokenBucket(algo.PerDay(n), n)},
				{Name: "c", Algorithm: algo.BucketedWindow(algo.PerDay(n), 10)},
			}
			key, sum := newHotKey("k", ps, k, noDenials), int64(0)
			for i := range k {
				for j := range ps {
					part := ps[j].Algorithm.Part(int64(i), int64(k))
					if part.Check() != nil {
						continue
					}
					require.Equal(t, part.Max(), key.subs[i].rooms[j].units.Load(), "%d of %d of %d", i, k, n)
					require.Equal(t, part, key.subs[i].policies[j].Algorithm)
				}
				sum += key.subs[i].rooms[0].units.Load()
			}
			require.Equal(t, n, sum)
		}
	}
}
