package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
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
	for name, c := range map[string]struct {
		modes     []headgate.FailureMode
		cost      int64
		shards    int
		estimated bool
		counted   []bool
	}{
		"open":                {[]headgate.FailureMode{open}, 1, 0, true, []bool{false}},
		"closed":              {[]headgate.FailureMode{closed}, 1, 0, true, []bool{false}},
		"open, spread":        {[]headgate.FailureMode{open}, 1, 4, true, []bool{false}},
		"closed, spread":      {[]headgate.FailureMode{closed}, 1, 4, true, []bool{false}},
		"open and closed":     {[]headgate.FailureMode{open, closed}, 1, 0, true, []bool{false, false}},
		"local":               {[]headgate.FailureMode{local}, 1, 0, false, []bool{true}},
		"open and local":      {[]headgate.FailureMode{open, local}, 1, 0, false, []bool{false, true}},
		"local above a share": {[]headgate.FailureMode{open, local}, 51, 0, true, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var ps []headgate.Policy
			for i, m := range c.modes {
				ps = append(ps, headgate.Policy{Name: string(rune('a' + i)), Algorithm: algo.FixedWindow(algo.Per(100, algo.MaxPeriod)), OnFailure: m, Shards: c.shards})
			}
			l, err := headgate.New(nobody, ps, &headgate.Options{Instances: 2})
			require.NoError(t, err)
			each := make([]headgate.State, len(ps))
			costs := make([]int64, len(ps))
			for i := range costs {
				costs[i] = c.cost
			}
			d, err := l.Do(context.Background(), headgate.Call{Key: name, Costs: costs, Each: each})
			require.NoError(t, err)
			require.Equal(t, c.estimated, d.Estimated)
			require.Equal(t, !c.estimated, d.Counted)
			for i, s := range each {
				require.Equal(t, c.counted[i], s.Counted, s)
				if !s.Counted {
					s.RetryAfter = 0
					require.Equal(t, headgate.State{Policy: ps[i].Name, Limit: 100}, s, "only the limit is known")
				}
			}
		})
	}
}

// TestNumbersThatWereCounted: what a store said, also a moment ago, was counted.
func TestNumbersThatWereCounted(t *testing.T) {
	p := perMinute
	for _, p.Shards = range []int{0, 4} {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{p}, nil)
		require.NoError(t, err)
		for range 102 {
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.True(t, d.Counted)
			d, err = l.Peek(context.Background(), headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.True(t, d.Counted)
		}
	}
}
