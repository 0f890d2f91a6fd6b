// Package event works out what the event of a call reports beside its decision. That is
// which policies have come near their limits, and what the shadows decided.
package event

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Wants reports whether the event of a request needs the states of all policies of a group, where
// the decision's own is not enough. That is so if there are shadows, or several policies or keys
// of which each may be near its limit, and of a settlement. share is as in Near.
func Wants(op backend.Op, g *backend.Group, share float64, several bool) bool {
	switch {
	case g.Each != nil || !op.Raises() && !op.Decides():
		return false
	case op.Ends() || several:
		return true
	}
	return len(g.Policies) > 1 && share > 0 && op.Raises() ||
		slices.ContainsFunc(g.Policies, func(p backend.Policy) bool { return p.Shadow })
}

// Near appends the states of the group's policies whose count a call has raised to the share of
// the limit. It goes by what the store answered, and keeps nothing of a key. So of all
// calls in all processes one has it. d is the call's decision. behind is how many calls of
// the same take came after this one. A share not above 0 appends none.
func Near(near []backend.Near, share float64, behind int64, op backend.Op, g *backend.Group, d *backend.Decision) []backend.Near {
	//mutant:near-of-counted
	if share <= 0 || !d.Allowed || d.Source == backend.FromLoan || !op.Raises() { // a Borrow reports the units of a lease
		return near
	}
	for i := range g.Policies {
		s, cost := &d.State, g.Charged(i, d.Passed)
		if g.Each != nil {
			s = &g.Each[i]
		} else if len(g.Policies) > 1 || op.Ends() {
			return near
		}
		if op.Ends() {
			//mutant:near-of-undecided
			if g.Lease.Unresolved { // no event had the estimate
				cost = 0
			}
			cost = max(0, g.Lease.ActualOf(g.Policies, i)-cost)
		}
		//mutant:near-of-each-waiter
		near = raised(near, share, g, i, s, behind*cost, cost)
	}
	return near
}

// NearOfLoan returns what Near does for n units that were charged because of a Borrow. The
// cost of the call that the Borrow decides is charged after them, and is that call's own.
func NearOfLoan(share float64, n int64, g *backend.Group, d *backend.Decision) (near []backend.Near) {
	if share <= 0 {
		return nil
	}
	after := int64(0)
	//mutant:near-of-loan-alone
	if d.Allowed {
		after = g.Cost
	}
	for i := range g.Each {
		near = raised(near, share, g, i, &g.Each[i], after, n)
	}
	return near
}

// raised appends the state of the i-th policy if n units have raised its count to the share.
// after is the units that were charged after them. Lent units are not used.
func raised(near []backend.Near, share float64, g *backend.Group, i int, s *backend.State, after, n int64) []backend.Near {
	//mutant:lent-units-are-not-near
	used := s.Used - s.Lent - after
	//mutant:spread-is-not-near
	if p := &g.Policies[i]; s.Known != backend.NotCounted && !p.Shadow && g.Shards < 2 && !reached(used-n, s.Limit, share) && reached(used, s.Limit, share) {
		near = append(near, backend.Near{Key: g.Key, State: *s})
	}
	return near
}

// reached compares the quotient and not share * limit. A share such as 0.55 is the float
// next to 55/100, as the quotient is. The product is 55.00000000000001, above 55.
func reached(used, limit int64, share float64) bool {
	return float64(used)/float64(limit) >= share
}

// Shadow returns what the shadow policies of a call decided, nil if no store has counted
// them, and for a settlement, which decides nothing. d is the decision of the request. Of a
// call for several keys, earlier is that of the groups before, and the one that binds of both
// is returned.
func Shadow(earlier *backend.Decision, op backend.Op, g *backend.Group, d *backend.Decision) *backend.Decision {
	//mutant:settled-shadow-silent
	if op.Ends() {
		return earlier
	}
	var shadows []backend.Policy
	var own []backend.State
	for i, s := range g.Each {
		//mutant:shadow-event-counted
		if p := g.Policies[i]; p.Shadow && s.Known != backend.NotCounted {
			shadows, own = append(shadows, p), append(own, s)
		}
	}
	if shadows == nil {
		return earlier
	}
	shadow := backend.Decision{State: own[backend.Binding(shadows, own)], Source: d.Source}
	//mutant:shadow-of-earlier-key
	if earlier != nil && backend.Binding(make([]backend.Policy, 2), []backend.State{earlier.State, shadow.State}) == 0 {
		return earlier
	}
	shadow.Allowed = shadow.RetryAfter == 0
	return &shadow
}
