package event

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestNearOfLoan: a Borrow reports the units that calls used before it, and its own call
// reports its cost. No unit is reported by both. Lent units are reported by neither.
func TestNearOfLoan(t *testing.T) {
	const limit, lent = 100, 7
	list := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(limit))}, {Name: "s", Algorithm: algo.FixedWindow(algo.PerDay(limit)), Shadow: true}}
	for _, c := range []struct {
		charged, cost, used int64 // used: after both
		denied              bool
		loan, call          bool
	}{
		{charged: 10, used: 79},
		{charged: 10, used: 80, loan: true},
		{charged: 10, used: 89, loan: true},
		{charged: 10, used: 90},
		{charged: 10, cost: 5, used: 84, call: true},
		{charged: 10, cost: 5, used: 85, loan: true},
		{charged: 10, cost: 5, used: 94, loan: true},
		{charged: 10, cost: 5, used: 95},
		{charged: 10, cost: 5, used: 80, denied: true, loan: true},
		{cost: 5, used: 80, call: true},
		{cost: 5, used: 79},
	} {
		each := []backend.State{{Policy: "p", Known: backend.Exact, Limit: limit, Used: c.used + lent, Lent: lent}, {Policy: "s", Known: backend.Exact, Limit: limit, Used: c.used}}
		r := &backend.Request{Op: backend.Borrow, Group: backend.Group{Key: "k", Policies: list, Cost: c.cost, Each: each}}
		d := &backend.Decision{Allowed: !c.denied, Source: backend.FromStore}
		want := []backend.Near{{Key: "k", State: each[0]}}
		loan := NearOfLoan(0.8, c.charged, &r.Group, d)
		if c.loan {
			require.Equal(t, want, loan, c)
		} else {
			require.Empty(t, loan, c)
		}
		r.Op = backend.Take // as its caller has it
		call := Near(nil, 0.8, 0, r.Op, &r.Group, d)
		if c.call {
			require.Equal(t, want, call, c)
		} else {
			require.Empty(t, call, c)
		}
		require.Empty(t, NearOfLoan(-1, c.charged, &r.Group, d))
		r.Shards = 2
		require.Empty(t, NearOfLoan(0.8, c.charged, &r.Group, d))
		r.Shards = 0
	}
}
