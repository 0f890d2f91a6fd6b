package headgate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestPassed: what AllowAtMost passed stands in the decision, whatever made it, and nothing
// does if it was denied. A decision of another verb has no run.
func TestPassed(t *testing.T) {
	const open, closed, local = headgate.FailOpen, headgate.FailClosed, headgate.FailLocal
	for name, c := range map[string]struct {
		modes  [2]headgate.FailureMode
		limit  int64
		down   bool
		shadow bool
		want   headgate.Source
		passes bool
	}{
		"store":               {[2]headgate.FailureMode{open, open}, 20, false, false, headgate.FromStore, true},
		"open":                {[2]headgate.FailureMode{open, open}, 20, true, false, headgate.FromFailOpen, true},
		"closed":              {[2]headgate.FailureMode{open, closed}, 20, true, false, headgate.FromFailClosed, false},
		"local":               {[2]headgate.FailureMode{local, local}, 20, true, false, headgate.FromFailLocal, true},
		"local beside open":   {[2]headgate.FailureMode{local, open}, 20, true, false, headgate.FromFailLocal, true},
		"shadows":             {[2]headgate.FailureMode{open, open}, 20, false, true, headgate.FromStore, true},
		"shadows above limit": {[2]headgate.FailureMode{open, open}, 2, false, true, headgate.FromStore, true},
		"shadows, down":       {[2]headgate.FailureMode{open, open}, 20, true, true, headgate.FromFailOpen, true},
	} {
		for _, shards := range []int{0, 2} {
			policies := []headgate.Policy{daily("a", c.limit), daily("b", c.limit)}
			for i := range policies {
				policies[i].OnFailure, policies[i].Shadow = c.modes[i], c.shadow
			}
			s := newLossy()
			s.shared = new(layer.Shared)
			l := limiter(t, s, &headgate.Options{Instances: 1, Shards: shards}, policies...)
			if c.down {
				s.lose(onAll, 0)
			}
			t.Run(fmt.Sprint(name, shards), func(t *testing.T) {
				d, err := l.AllowAtMost(context.Background(), "a", 3)
				require.NoError(t, err)
				require.Equal(t, c.passes, d.Allowed)
				require.Equal(t, c.want, d.Source)
				require.Equal(t, map[bool]int64{true: 3}[c.passes], d.Passed)
				if d, err = l.AllowN(context.Background(), "b", 2); err == nil {
					require.Zero(t, d.Passed)
				}
			})
		}
	}
}

// TestLocalLeaseOfNothing: a reservation that costs nothing of a policy that fails local
// is settled in this process all the same.
func TestLocalLeaseOfNothing(t *testing.T) {
	s, local := newLossy(), daily("a", 20)
	s.lose(onAll, 0)
	local.OnFailure = headgate.FailLocal
	l := limiter(t, s, &headgate.Options{Instances: 1}, local, daily("b", 20))
	r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{0, 1}})
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailLocal, d.Source)
	require.True(t, d.Allowed)
	require.ErrorIs(t, r.Commit(context.Background(), 7, 1), headgate.ErrUnavailable)
	d, err = l.Peek(context.Background(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 7, d.Used)
}

// TestPassedOfDenial: nothing of a run passes that is denied, by the store or by the deny
// cache. What a run leaves is known: the next call asks no store.
func TestPassedOfDenial(t *testing.T) {
	l := limiter(t, remote(memory.New(nil)), nil, daily("a", 4), daily("b", 5))
	d, err := l.AllowAtMost(context.Background(), "k", 7)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 4, d.Passed)
	require.Positive(t, d.NextAfter)
	require.Zero(t, d.RetryAfter)
	next, err := l.AllowAtMost(context.Background(), "k", 7)
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, next.Source)
	require.False(t, next.Allowed)
	require.Zero(t, next.Passed)
	require.LessOrEqual(t, next.RetryAfter, d.NextAfter)
	require.Positive(t, next.RetryAfter)
}
