package denial

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Longest is the maximum duration for which a denial holds without a request.
const Longest = time.Second

// Denial is a store's answer that denied a call. It is never written after it was
// made.
//
// It holds for every call that costs no less of the policies that bound: a call is
// all or nothing, so what it costs the others does not help.
type Denial struct {
	States     []backend.State // one per policy, as of Told; or the binding one alone
	Costs      []int64         // of the call that was denied, one per policy
	Bound      uint64          // the policies that bound, a bit for each
	Sent, Told time.Duration   // before the request was sent, and when its answer had come
	Ends       time.Duration   // when the store may let the call pass; counted from Sent, so never too late
}

// cacheable reports whether a store's denial of g may be cached. One by slots may not:
// any process may free a slot at any time.
func cacheable(g *backend.Group, d *backend.Decision) bool {
	bySlots := slices.ContainsFunc(g.Policies, func(p backend.Policy) bool {
		return p.Name == d.Policy && p.Algorithm.Kind().Leased()
	})
	return d.RetryAfter > 0 && !bySlots // mutant: slots-not-cached
}

// NewDenial returns the denial of g with these states. Where they are not those of all
// policies, it is not known which policy bound: then a call that costs less of any may
// pass.
func NewDenial(g *backend.Group, states []backend.State, sent, told time.Duration) *Denial {
	by := backend.Binding(states)
	bound := uint64(1) << by
	if n := len(g.Policies); len(states) < n {
		bound = 1<<n - 1
	}
	return &Denial{slices.Clone(states), Costs(g), bound, sent, told, sent + states[by].RetryAfter} // mutant: denial-ends
}

// Denies reports whether, while the denial holds, g is denied too.
func (d *Denial) Denies(g *backend.Group) bool {
	for i := range d.Costs {
		if d.Bound>>i&1 == 1 && g.CostOf(i) < d.Costs[i] { // mutant: denied-costs
			return false
		}
	}
	return true
}

// Until returns when the denial no longer holds without a request.
func (d *Denial) Until() time.Duration { return min(d.Ends, d.Sent+Longest) } // mutant: denied-one-second

// State returns what the denial says to g of its i-th policy at now. A policy that g
// costs less than was denied may have room, so it gets no RetryAfter. For a larger cost
// it is the least that can be said. Times count from the answer's arrival, not from the
// sending: then a call that waits for RetryAfter is not early.
func (d *Denial) State(i int, g *backend.Group, now time.Duration) backend.State {
	s := d.States[i]
	age := max(0, now-d.Told).Truncate(time.Microsecond) // a store's times are whole microseconds
	s.RetryAfter, s.ResetAfter = max(0, s.RetryAfter-age), max(0, s.ResetAfter-age)
	if g.CostOf(i) < d.Costs[i] {
		s.RetryAfter = 0
	}
	return s
}

// Answer denies g at now.
func (d *Denial) Answer(g *backend.Group, answer *backend.Decision, now time.Duration) {
	*answer = backend.Decision{Source: backend.FromDenyCache, Estimated: true}
	answer.State = d.State(backend.Binding(d.States), g, now)
	for i := range g.Each {
		g.Each[i] = d.State(i, g, now)
	}
	g.NewReceipt(backend.NotTaken)
	answer.Receipt = g.Receipt
}

// Costs returns what g costs each of its policies.
func Costs(g *backend.Group) []int64 {
	if g.Costs != nil {
		return slices.Clone(g.Costs)
	}
	return slices.Repeat([]int64{g.Cost}, len(g.Policies))
}
