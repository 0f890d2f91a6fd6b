package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/stretchr/testify/require"
)

// TestNumbersNobodyCounted: where no store decided, a decision says of each
// policy whether its numbers were counted; and no number is made up.
func TestNumbersNobodyCounted(t *testing.T) {
	nobody, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	defer nobody.Close()
	const open, closed, local = headgate.FailOpen, headgate.FailClosed, headgate.FailLocal
	const no, yes = backend.NotCounted, backend.Exact
	for name, c := range map[string]struct {
		modes  []headgate.FailureMode
		cost   int64
		shards int
		known  backend.Known
		each   []backend.Known
	}{
		"open":                {[]headgate.FailureMode{open}, 1, 0, no, []backend.Known{no}},
		"closed":              {[]headgate.FailureMode{closed}, 1, 0, no, []backend.Known{no}},
		"open, spread":        {[]headgate.FailureMode{open}, 1, 4, no, []backend.Known{no}},
		"closed, spread":      {[]headgate.FailureMode{closed}, 1, 4, no, []backend.Known{no}},
		"open and closed":     {[]headgate.FailureMode{open, closed}, 1, 0, no, []backend.Known{no, no}},
		"local":               {[]headgate.FailureMode{local}, 1, 0, yes, []backend.Known{yes}},
		"open and local":      {[]headgate.FailureMode{open, local}, 1, 0, yes, []backend.Known{no, yes}},
		"local above a share": {[]headgate.FailureMode{open, local}, 51, 0, no, []backend.Known{no, no}},
	} {
		t.Run(name, func(t *testing.T) {
			var ps []headgate.Policy
			for i, m := range c.modes {
				ps = append(ps, headgate.Policy{Name: string(rune('a' + i)), Algorithm: algo.FixedWindow(algo.Per(100, algo.MaxPeriod)), OnFailure: m})
			}
			l, err := headgate.New(nobody, ps, &headgate.Options{Instances: 2, Shards: c.shards})
			require.NoError(t, err)
			each := make([]headgate.State, len(ps))
			costs := make([]int64, len(ps))
			for i := range costs {
				costs[i] = c.cost
			}
			d, err := l.Do(context.Background(), headgate.Call{Key: name, Costs: costs, Each: each})
			require.NoError(t, err)
			require.Equal(t, c.known, d.Known)
			for i, s := range each {
				require.Equal(t, c.each[i], s.Known, s)
				if s.Known == no {
					s.RetryAfter = 0
					require.Equal(t, headgate.State{Policy: ps[i].Name, Limit: 100}, s, "only the limit is known")
				}
			}
		})
	}
}

// TestNumbersThatWereCounted: what a store said, also a moment ago, was counted.
func TestNumbersThatWereCounted(t *testing.T) {
	for _, shards := range []int{0, 4} {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{Shards: shards})
		require.NoError(t, err)
		for range 102 {
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.NotEqual(t, backend.NotCounted, d.Known)
			d, err = l.Peek(context.Background(), headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.NotEqual(t, backend.NotCounted, d.Known)
		}
	}
}
