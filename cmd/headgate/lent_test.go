package main

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestPeekOfLentUnits: peek prints how many units processes hold in advance, with a policy
// file and without one.
func TestPeekOfLentUnits(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			l := p.limiter(t, "one")
			take(t, l, "key", 3, 1)
			loan := backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 100}
			r := backend.Request{Op: backend.Borrow, Group: backend.Group{Key: "key", Policies: l.Policies()}, Loan: &loan}
			require.NoError(t, p.store.Do(t.Context(), &r, new(backend.Decision)))
			require.EqualValues(t, 100, loan.Lent.Units)
			args := append([]string{"peek", "-policies", path, "-plan", "one"}, p.args...)
			require.Contains(t, exec(t, 0, append(args, "key")...), "fixed: processes hold 100 of the used units in advance")
			require.Contains(t, exec(t, 0, append(append([]string{"peek"}, p.args...), "key")...), "103 units used now")
			require.Contains(t, exec(t, 0, append(append([]string{"peek"}, p.args...), "key")...), "processes hold 100 of them in advance")
		})
	}
}
