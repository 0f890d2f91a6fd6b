package shard

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestMostIsThePartsOwn: what a plan says of a share without making it is what
// the share's algorithm says.
func TestMostIsThePartsOwn(t *testing.T) {
	for _, n := range []int64{2, 7, 1000, 1023, algo.MaxLogLimit, algo.MaxLimit} {
		for _, k := range []int{2, 3, 7, 16, 1000, Most} {
			ps := []backend.Policy{
				{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(n)), Shards: k},
				{Name: "b", Algorithm: algo.TokenBucket(algo.PerDay(n), n), Shards: k},
				{Name: "c", Algorithm: algo.BucketedWindow(algo.PerDay(n), 10), Shards: k},
			}
			p, sum := newPlan(ps), int64(0)
			for i := range k {
				for j := range ps {
					part := ps[j].Algorithm.Part(int64(i), int64(k))
					if part.Check() != nil {
						continue
					}
					require.Equal(t, part.Max(), p.most(i, j), "%d of %d of %d", i, k, n)
					require.Equal(t, part, p.part(i)[j].Algorithm)
				}
				sum += p.most(i, 0)
			}
			require.Equal(t, n, sum)
		}
	}
}

// TestPlansAreBounded: lists that say the same have one plan, and what many
// lists leave behind is bounded.
func TestPlansAreBounded(t *testing.T) {
	m := newKnown(nil)
	list := func(n int64, k int) []backend.Policy {
		return []backend.Policy{{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(n)), Shards: k}}
	}
	require.Same(t, m.plan(list(1000, 16)), m.plan(list(1000, 16)))
	p := m.plan(list(1000, 16))
	m.plan(list(2000, 16))
	require.Same(t, p, m.plan(list(1000, 16)), "it is not the last any more")
	for i := range int64(10_000) {
		m.plan(list(5000+i, Most))
	}
	cells := 0
	for i := range m.plans {
		if p := m.plans[i].Load(); p != nil && len(p.parts) == Most {
			cells += len(p.parts)
		}
	}
	require.LessOrEqual(t, cells, cellsMost)
	require.NotZero(t, cells)
}

// TestKnownOutlivesItsPlan: what is known of a key is found again by a list
// that says the same, whether its plan was kept or not.
func TestKnownOutlivesItsPlan(t *testing.T) {
	m := newKnown(nil)
	list := func(n int) []backend.Policy {
		return []backend.Policy{{Name: fmt.Sprint("p", n), Algorithm: algo.FixedWindow(algo.PerDay(1000)), Shards: 4}}
	}
	e := m.find("k", m.plan(list(0)))
	for i := range m.plans {
		m.plans[i].Store(nil)
	}
	m.last.Store(nil)
	require.Same(t, e, m.find("k", m.plan(list(0))))
	require.NotSame(t, e, m.find("k", m.plan(list(1))))
}
