package headgate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestFailedReservations: a reservation that passed by a failure mode is recorded by its
// Commit, once, by each algorithm and by three of them. The lease in this process ends
// with it.
func TestFailedReservations(t *testing.T) {
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, redistest.Start(t))} {
		for i, list := range failing() {
			for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailLocal} {
				t.Run(fmt.Sprint(name, "/", i, "/", mode), func(t *testing.T) { failedReservation(t, s, list, mode) })
			}
		}
	}
}

// failing are lists of one and of three policies.
func failing() (lists [][]headgate.Policy) {
	var each []headgate.Policy
	for i, k := range algo.Kinds() {
		a := k.Random(algo.PerDay(100), func(least, most int64) int64 { return min(max(least, 100), most) })
		each = append(each, headgate.Policy{Name: fmt.Sprint("p", i), Algorithm: a})
		lists = append(lists, []headgate.Policy{each[i]})
		if i >= 2 {
			lists = append(lists, append([]headgate.Policy(nil), each[i-2:]...))
		}
	}
	return lists
}

func failedReservation(t *testing.T, on backend.Store, list []headgate.Policy, mode headgate.FailureMode) {
	ctx, s := context.Background(), lossyOf(on)
	list = slices.Clone(list)
	for i := range list {
		list[i].OnFailure = mode
	}
	l := limiter(t, s, &headgate.Options{Instances: 2}, list...)
	require.NoError(t, l.Reset(ctx, "k"))
	units := func(n int64) (all []int64) {
		for range list {
			all = append(all, n)
		}
		return all
	}
	s.lose(onAll, 0)
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(40)}) // of a share of 50
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.False(t, d.Source == headgate.FromStore)
	_, d, err = l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(40)})
	require.NoError(t, err)
	require.Equal(t, mode == headgate.FailOpen, d.Allowed)
	require.ErrorIs(t, r.Commit(ctx, units(25)...), headgate.ErrUnavailable)
	if mode == headgate.FailLocal {
		_, d, err = l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(25)})
		require.NoError(t, err)
		require.True(t, d.Allowed, "the local lease was settled: %+v", d)
	}
	s.lose(0, 0)
	require.NoError(t, r.Commit(ctx, units(25)...))
	requireUsed(t, l, units(25)...)
	require.ErrorIs(t, r.Commit(ctx, units(25)...), headgate.ErrNotHeld)
	require.NoError(t, r.Close())
	requireUsed(t, l, units(25)...)
}
