package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// sound walks every stripe: each record is found where its tag says, nothing is
// counted twice, and what is free is known to be.
func sound(t *testing.T, s *Store) {
	t.Helper()
	kept := 0
	for i := range s.stripes {
		kept += soundStripe(t, &s.stripes[i].mu)
	}
	require.Equal(t, s.Len(), kept)
}

func soundStripe(t *testing.T, m *guarded) (records int) {
	many := 0
	for i := range m.tables {
		tb := m.tables[i].Load()
		if tb == nil {
			continue
		}
		require.Equal(t, smallest+i, tb.size)
		live, gone := 0, 0
		for cell := range tb.cells() {
			switch tb.mark(cell) {
			case deleted:
				gone++
			case empty:
			default:
				live++
				many += soundRecord(t, m, tb, cell)
			}
		}
		require.Equal(t, []int{live, gone}, []int{tb.live, tb.deleted})
		require.LessOrEqual(t, (live+gone)*16, tb.cells()*15, "a search may not end")
		records += live
	}
	require.Equal(t, len(m.many), many+len(m.spare))
	return records
}

// soundRecord returns how much memory of its own the record has.
func soundRecord(t *testing.T, m *guarded, tb *table, cell int) (many int) {
	w := tb.at(cell)
	require.Zero(t, w[tagWord]&dead, "still owned")
	require.Equal(t, markOf(tagIn(w)), tb.mark(cell))
	for g := tb.home(tagIn(w)); g != cell/group; g = tb.next(g) {
		require.Zero(t, matches(tb.marks(g), empty), "a search ends before it")
	}
	k, n := kindIn(w[tagWord]), lenIn(w[tagWord])
	require.NotZero(t, k)
	require.Equal(t, tb.size, sizeOf(k, n))
	for _, i := range m.asides(w) {
		require.NotNil(t, m.many[i])
	}
	if n > inline {
		require.Len(t, m.many[w[header+wordsOf(k)]], keyWords(n))
	}
	return len(m.asides(w))
}
