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
// It holds for every call that costs no less of the policies that bound. A call is
// all or nothing, so what it costs the others does not help.
type Denial struct {
	States     []backend.State // one per policy, as of Told
	Partial    bool            // only the binding one is known
	Costs      []int64         // of the call that was denied, one per policy
	Bound      uint64          // the policies that bound, a bit for each
	Sent, Told time.Duration   // before the request was sent, and when its answer had come
	Ends       time.Duration   // when the store may let the call pass; counted from Sent, so never too late
}

// cacheable reports whether a store's denial of g may be cached. One by slots may not:
// any process may free a slot at any time.
func cacheable(g *backend.Group, s *backend.State) bool {
	bySlots := slices.ContainsFunc(g.Policies, func(p backend.Policy) bool {
		return p.Name == s.Policy && p.Algorithm.Kind().Leased()
	})
	//mutant:slots-not-cached
	return s.RetryAfter > 0 && !bySlots
}

// NewDenial returns the denial of g with these states: of all policies, or only of the
// binding one.
func NewDenial(g *backend.Group, states []backend.State, sent, told time.Duration) *Denial {
	partial := len(states) < len(g.Policies)
	if partial {
		known := states[0]
		states = unknown(g.Policies)
		states[max(0, slices.IndexFunc(g.Policies, func(p backend.Policy) bool { return p.Name == known.Policy }))] = known
	} else {
		states = slices.Clone(states)
	}
	by := backend.Binding(g.Policies, states)
	//mutant:denial-ends
	return &Denial{states, partial, Costs(g), 1 << by, sent, told, sent + states[by].RetryAfter}
}

// unknown returns the states of policies whose counts are not known.
func unknown(policies []backend.Policy) []backend.State {
	states := make([]backend.State, len(policies))
	for i := range policies {
		states[i] = backend.State{Policy: policies[i].Name, Limit: policies[i].Algorithm.Max()}
	}
	return states
}

// Denies reports whether, while the denial holds, g is denied too.
func (d *Denial) Denies(g *backend.Group) bool {
	for i := range d.Costs {
		//mutant:denied-costs
		if d.Bound>>i&1 == 1 && g.CostOf(i) < d.Costs[i] {
			return false
		}
	}
	return true
}

// Until returns when the denial no longer holds without a request.
//
//mutant:denied-one-second
func (d *Denial) Until() time.Duration { return min(d.Ends, d.Sent+Longest) }

// State returns what the denial says to g of its i-th policy at now. A policy that g
// costs less than was denied may have room, so it gets no RetryAfter. For a higher cost
// it is a lower bound. Times count from the answer's arrival, not from the
// sending: then a call that waits for RetryAfter is not early.
func (d *Denial) State(i int, g *backend.Group, now time.Duration) backend.State {
	s := d.States[i]
	d.age(i, g, now, &s)
	return s
}

// age makes s what the denial says at now.
func (d *Denial) age(i int, g *backend.Group, now time.Duration, s *backend.State) {
	age := max(0, now-d.Told).Truncate(time.Microsecond) // a store's times are whole microseconds
	s.RetryAfter, s.ResetAfter = max(0, s.RetryAfter-age), max(0, s.ResetAfter-age)
	if g.CostOf(i) < d.Costs[i] {
		s.RetryAfter = 0
	}
}

// stateAt sets s to State. If g costs more than what was denied, the RetryAfter is that of
// g's cost, as far as the state determines it. Units that are lent may come back sooner, so
// they are left out.
func (d *Denial) stateAt(i int, g *backend.Group, now time.Duration, s *backend.State) {
	*s = d.States[i]
	//mutant:cached-is-estimated
	s.Known = min(s.Known, backend.Estimated)
	d.age(i, g, now, s)
	//mutant:higher-cost-later
	if p := &g.Policies[i]; g.CostOf(i) > d.Costs[i] && s.Lent == 0 {
		s.RetryAfter = max(s.RetryAfter, backend.PassesAfter(&p.Algorithm, s, g.CostOf(i)))
	}
}

// Answer denies g at now. The states of its shadows are not counted.
func (d *Denial) Answer(g *backend.Group, answer *backend.Decision, now time.Duration) {
	*answer = backend.Decision{Source: backend.FromDenyCache}
	d.stateAt(backend.Binding(g.Policies, d.States), g, now, &answer.State)
	for i := range d.States {
		// At a higher cost another policy may bind.
		if g.Policies[i].Shadow || g.CostOf(i) <= d.Costs[i] {
			continue
		}
		var s backend.State
		if d.stateAt(i, g, now, &s); s.RetryAfter > answer.RetryAfter {
			answer.State = s
		}
	}
	for i := range g.Each {
		g.Each[i] = backend.State{Policy: g.Policies[i].Name, Limit: g.Policies[i].Algorithm.Max()}
	}
	for i := range backend.Enforced(g.Policies[:len(g.Each)]) {
		d.stateAt(i, g, now, &g.Each[i])
	}
}

// Costs returns what g costs each of its policies.
func Costs(g *backend.Group) []int64 {
	if g.Costs != nil {
		return slices.Clone(g.Costs)
	}
	return slices.Repeat([]int64{g.Cost}, len(g.Policies))
}
