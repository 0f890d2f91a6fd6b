package headgate_test

import (
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestCostsByName: units go by the names of policies, whatever the order of the list is, and
// a name that is not in the list is an error.
func TestCostsByName(t *testing.T) {
	requests := headgate.Policy{Name: "requests", Algorithm: algo.SlidingLog(algo.PerMinute(10)), OnFailure: headgate.FailClosed}
	tokens := headgate.Policy{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerMinute(1000)), OnFailure: headgate.FailClosed}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{requests, tokens}, nil)
	require.NoError(t, err)
	reordered, err := l.With(tokens, requests)
	require.NoError(t, err)

	named := map[string]int64{"tokens": 300}
	costs, err := l.Costs(nil, named)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 300}, costs)
	costs, err = reordered.Costs(nil, named)
	require.NoError(t, err)
	require.Equal(t, []int64{300, 1}, costs)

	estimate := []int64{300, 2}
	used, err := reordered.Costs(estimate, map[string]int64{"tokens": 120})
	require.NoError(t, err)
	require.Equal(t, []int64{120, 2}, used)
	require.Equal(t, []int64{300, 2}, estimate, "the caller's list stays")
	all, err := l.Costs(nil, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, all)

	var invalid *headgate.InvalidError
	_, err = l.Costs(nil, map[string]int64{"tokens": 1, "toknes": 5, "units": 5})
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, headgate.InvalidError{What: "policy", Value: "toknes", Want: "one of requests, tokens"}, *invalid)
	_, err = l.Costs([]int64{1}, named)
	require.ErrorAs(t, err, &invalid)
	_, err = new(headgate.Limiter).Costs(nil, named)
	require.ErrorAs(t, err, &invalid)
	_, err = (*headgate.Limiter)(nil).Costs(nil, nil)
	require.ErrorAs(t, err, &invalid)
}
