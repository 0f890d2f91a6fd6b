package otellimit_test

import (
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestShadow: what a shadow policy would have denied is no denial, and is counted by a
// counter of its own.
func TestShadow(t *testing.T) {
	m, reader := start(t, nil)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(100)), OnFailure: headgate.FailOpen},
		{Name: "tighter", Algorithm: algo.SlidingLog(algo.PerMinute(3)), OnFailure: headgate.FailOpen, Shadow: true},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	for range 5 {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
	}
	_, err = l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{1, 4}}) // more than the shadow can ever grant
	require.NoError(t, err)
	_, err = l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{100, 1}}) // which the other one denies
	require.NoError(t, err)
	require.NoError(t, l.Reset(ctx, "k"))
	got := read(t, reader)
	require.Equal(t, map[string]float64{
		"operation=take policy=api result=allowed source=store": 6,
		"operation=take policy=api result=denied source=store":  1,
		"operation=reset result=done":                           1,
	}, got[decisions])
	require.Equal(t, map[string]float64{
		"operation=take policy=tighter result=allowed source=store": 3,
		"operation=take policy=tighter result=denied source=store":  3,
	}, got[shadowDecisions])
}

// TestShadowOfAnotherKey: the event of a call of several keys has the policies of the key
// that binds. The shadow of another one has its name all the same.
func TestShadowOfAnotherKey(t *testing.T) {
	m, reader := start(t, nil)
	tenant, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "requests", Algorithm: algo.SlidingLog(algo.PerMinute(100)), OnFailure: headgate.FailOpen},
		{Name: "tighter", Algorithm: algo.SlidingLog(algo.PerMinute(50)), OnFailure: headgate.FailOpen, Shadow: true},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	route, err := tenant.With(headgate.Policy{Name: "route", Algorithm: algo.SlidingLog(algo.PerMinute(10)), OnFailure: headgate.FailOpen})
	require.NoError(t, err)
	for range 3 {
		_, err := headgate.All(ctx, tenant.Part("t"), route.Part("r"))
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{
		"operation=take policy=tighter result=allowed source=store": 3,
	}, read(t, reader)[shadowDecisions])
}

// TestOnlyShadows: where all policies are shadows, none of them binds.
func TestOnlyShadows(t *testing.T) {
	trial := headgate.Policy{Name: "trial", Algorithm: algo.SlidingLog(algo.PerMinute(3)), OnFailure: headgate.FailOpen, Shadow: true}
	other := trial
	other.Name = "other"
	for _, list := range [][]headgate.Policy{{trial}, {trial, other}} {
		m, reader := start(t, nil)
		l, err := headgate.New(memory.New(nil), list, &headgate.Options{Observer: m.Observe})
		require.NoError(t, err)
		for range 5 {
			_, err := l.Allow(ctx, "k")
			require.NoError(t, err)
		}
		require.NoError(t, l.Reset(ctx, "k"))
		require.Equal(t, map[string]float64{
			"operation=take result=allowed source=store": 5,
			"operation=reset result=done":                1,
		}, read(t, reader)[decisions])
	}
}

// TestReservations: a settlement, an extension and a record pass nothing and deny
// nothing.
func TestReservations(t *testing.T) {
	m, reader := start(t, nil)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(2)), OnFailure: headgate.FailOpen},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	for range 3 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		if d.Allowed {
			require.NoError(t, r.Extend(ctx))
			require.NoError(t, r.Commit(ctx))
		}
	}
	_, err = l.Record(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{
		"operation=reserve policy=api result=allowed source=store": 2,
		"operation=reserve policy=api result=denied source=store":  1,
		"operation=extend policy=api result=done":                  2,
		"operation=settle policy=api result=done":                  2,
		"operation=record policy=api result=done":                  1,
	}, read(t, reader)[decisions])
}
