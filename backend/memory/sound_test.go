package memory

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

func by(name string, a algo.Algorithm) backend.Policy {
	return backend.Policy{Name: name, Algorithm: a}
}

func ask(t *testing.T, s *Store, op backend.Op, g backend.Group) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
	require.NoError(t, err)
	return d
}

// kinds are one algorithm of each kind.
var kinds = []algo.Algorithm{
	algo.FixedWindow(algo.PerSecond(5)), algo.SlidingWindow(algo.PerSecond(5)), algo.TokenBucket(algo.PerSecond(5), 5),
	algo.BucketedWindow(algo.PerSecond(5), 4), algo.SlidingLog(algo.PerSecond(5)),
}

// slow are the kinds with such a period that nothing comes back during a test.
func slow(limit int64) []algo.Algorithm {
	l := algo.Per(limit, algo.MaxPeriod)
	return []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(algo.Per(1, algo.MaxPeriod), limit),
		algo.BucketedWindow(l, 10), algo.SlidingLog(l),
	}
}

// sound walks every stripe: each record is found where its tag says, nothing is
// counted twice, and the counts of what is free are right.
func sound(t *testing.T, s *Store) {
	t.Helper()
	kept := 0
	for i := range s.stripes {
		kept += soundStripe(t, &s.stripes[i])
	}
	require.Equal(t, s.Len(), kept)
	soundStripe(t, &s.overflow)
}

func soundStripe(t *testing.T, st *stripe) (records int) {
	t.Helper()
	outOfLine := 0
	for i, tb := range st.mu.tables {
		if tb == nil {
			continue
		}
		require.Equal(t, minSize+i, tb.size)
		live, gone := 0, 0
		for slot := range tb.slots() {
			switch tb.control(slot) {
			case deleted:
				gone++
			case empty:
			default:
				live++
				outOfLine += soundRecord(t, st, tb, slot)
			}
		}
		require.Equal(t, []int{live, gone}, []int{tb.live, tb.deleted})
		require.LessOrEqual(t, (live+gone)*16, tb.slots()*15, "a search may not end")
		records += live
	}
	require.Equal(t, len(st.mu.outOfLine.words), outOfLine+len(st.mu.outOfLine.spare))
	return records
}

// soundRecord returns how much the record holds out of line.
func soundRecord(t *testing.T, st *stripe, tb *table, slot int) (outOfLine int) {
	t.Helper()
	r := tb.at(slot)
	require.Equal(t, controlOf(r.tag()), tb.control(slot))
	for g := tb.home(r.tag()); g != slot/groupSlots; g = tb.following(g) {
		require.Zero(t, matches(tb.controls(g), empty), "a search ends before it")
	}
	require.NotZero(t, r.kind())
	require.Equal(t, tb.size, sizeOf(r.kind(), r.keyLen()))
	for _, number := range numbers(r) {
		require.NotNil(t, st.mu.outOfLine.words[number])
	}
	if r.keyLen() > longKey {
		require.Len(t, st.mu.outOfLine.words[r[headerWords+wordsOf(r.kind())]], keyWords(r.keyLen()))
	}
	return len(numbers(r))
}
