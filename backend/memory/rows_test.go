package memory

import (
	"encoding/hex"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	codec "github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/backend/internal/rows"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// TestRowOfAnotherKind: a count whose words are not as many as its kind has is none of ours.
func TestRowOfAnotherKind(t *testing.T) {
	few, many := uint64(rule.KindFixedWindow), uint64(rule.KindSlidingLog)
	for _, c := range []codec.Count{{ID: few, Many: true}, {ID: many, Words: []int64{1}}, {ID: few, Words: []int64{1, 2, 3, 4}}} {
		text := codec.AppendCount(codec.AppendCount(codec.Begin(nil), &codec.Count{}), &c)
		require.ErrorIs(t, newRows().Put(rows.Place{Key: "k"}, codec.Seal(text, 0)), codec.ErrGarbled)
	}
}

// TestRows: a row that was written is read by others, whose seeds are their own.
func TestRows(t *testing.T) {
	list := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(2))}, {Name: "q", Algorithm: algo.SlidingLog(algo.PerDay(5)), Shadow: true}}
	var text []byte
	k := rows.Place{Key: "k", Sub: "1"}
	for i := range 3 {
		all := newRows()
		all.Begin(1_000_000)
		require.NoError(t, all.Put(k, text))
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: k.Key, Sub: k.Sub, Policies: list, Cost: 1}}
		var d backend.Decision
		require.NoError(t, all.Do(&r, &d))
		require.Equal(t, i < 2, d.Allowed)
		written, until := all.Row(k)
		require.Equal(t, i < 2, written != nil)
		if written != nil {
			text = written
			require.Greater(t, until, int64(1_000_000))
			require.EqualValues(t, 1_000_000, all.Latest(text))
		}
	}
	golden.Equal(t, "row.golden", hex.Dump(text)) // identities are the same in all processes and releases
	none := newRows()
	require.ErrorIs(t, none.Put(k, []byte("garbage")), codec.ErrGarbled)
	require.Zero(t, none.Latest([]byte("garbage")))
}
