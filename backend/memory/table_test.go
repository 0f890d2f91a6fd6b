package memory

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTable holds a table equal to a map, with hashes that collide and tables that
// grow and shrink.
func TestTable(t *testing.T) {
	var tb table
	r, model := rand.New(rand.NewPCG(5, 6)), map[hash]int64{}
	for step := range 40_000 {
		h := hash(r.Uint64N(8)<<61 | r.Uint64N(uint64(2+step%10_000/100)) + 1)
		i, want := tb.at(h), model[h]
		require.Equal(t, want != 0, i >= 0)
		if i < 0 {
			tb.grow(1)
			tb.insert(h, uint16(step%3)).until = int64(step + 1)
			model[h] = int64(step + 1)
		} else {
			require.Equal(t, want, tb.slots[i].until)
			require.EqualValues(t, (want-1)%3, tb.class(i))
			tb.remove(i)
			delete(model, h)
		}
		require.Equal(t, len(model), tb.live)
		require.LessOrEqual(t, tb.live*5, len(tb.slots)*4, "a search may be long, or not end")
	}
	for h, want := range model {
		require.Equal(t, want, tb.find(h).until)
	}
}
