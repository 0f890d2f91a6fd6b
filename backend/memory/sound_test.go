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

// sound walks every stripe: all records are found, those that have many words have them,
// and their number is right, as is that of each class.
func sound(t *testing.T, s *Store) {
	t.Helper()
	kept, classes := 0, map[uint16]int64{}
	for i := range s.stripes {
		kept += soundStripe(t, &s.stripes[i])
		for j, slot := range s.stripes[i].mu.records.slots {
			if slot.hash != 0 {
				require.Equal(t, i, s.stripeAt(slot.hash), "a record in its key's stripe")
				classes[s.stripes[i].mu.records.class(j)]++
			}
		}
	}
	require.Equal(t, s.Len(), kept)
	for i, c := range *s.classes.list.Load() {
		require.Equal(t, classes[uint16(i)], c.kept.Load(), "class %q", c.name)
	}
	soundStripe(t, &s.overflow)
}

func soundStripe(t *testing.T, st *stripe) (records int) {
	t.Helper()
	tb := &st.mu.records
	for i := range tb.slots {
		if h := tb.slots[i].hash; h != 0 {
			require.Equal(t, i, tb.at(h))
			records++
		}
	}
	require.Equal(t, tb.live, records)
	require.LessOrEqual(t, tb.live*5, len(tb.slots)*4, "a search may be long, or not end")
	for h := range st.mu.many {
		require.NotNil(t, tb.find(h))
	}
	return records
}
