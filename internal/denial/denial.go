package denial

import (
	"slices"
	"sync/atomic"
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

// entry is the cached denial of a key. Only refreshing changes.
type entry struct {
	Denial
	generation uint64        // of its set, before Sent
	group      backend.Group // that was denied: its key, policies and costs; never written
	refreshing atomic.Bool   // one caller asks whether the denial still holds
	sent       atomic.Bool   // one caller of several keys was sent to ask
	refreshed  chan struct{} // closed when that caller has its answer
}

// denies reports whether g is denied: it is of the entry's key and policies, by their
// numbers, and costs enough. What a policy does on failure does not matter here.
func (e *entry) denies(g *backend.Group) bool {
	k, n := &e.group, len(e.group.Policies)
	if k.Key != g.Key || k.Sub != g.Sub || len(g.Policies) != n || g.Costs != nil && len(g.Costs) != n {
		return false
	}
	// Nearly always the list is the limiter's own.
	alike := &k.Policies[0] == &g.Policies[0] || slices.EqualFunc(k.Policies, g.Policies, equal)
	return alike && e.Denies(g)
}

// equal reports whether two policies decide alike: they have one count and one limit.
func equal(a, b backend.Policy) bool {
	return a.Name == b.Name && a.Algorithm == b.Algorithm && a.Shards == b.Shards // mutant: denied-algorithms
}

// due reports whether one caller is to refresh the denial: in the last quarter of the
// time for which it holds, where the store denies for longer. So a flood on a spent key
// asks about once per second.
func (e *entry) due(now, ttl time.Duration) bool {
	return e.Ends > e.Sent+ttl && now >= e.Sent+ttl*3/4 // mutant: due-lasts
}
