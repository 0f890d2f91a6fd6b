package denial

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// question is what an entry answers: a key under a list of policies, by costs.
type question = backend.Group

// entry is one denial: of which calls, with which numbers, and until when. Only
// refreshing changes after it was made.
type entry struct {
	key, sub   string
	policies   []backend.Policy // never written
	costs      []int64          // units, one per policy: calls that cost no less of any are denied
	states     []backend.State  // one per policy, as of told
	sent, told time.Duration    // before the request was sent, and when its answer had come
	ends       time.Duration
	lasting    bool // the store denies for longer than Longest
	generation uint64
	refreshing atomic.Bool   // one caller asks whether the denial still holds
	refreshed  chan struct{} // closed when that caller has its answer
}

// Denial is an answer that denies.
type Denial struct {
	States     []backend.State // one per policy, as of Told
	Costs      []int64         // the least that are denied, one per policy; 0 where any cost is
	Sent, Told time.Duration   // before the request was sent, and when its answer had come
	Lasts      time.Duration   // from Sent until the store may let the call pass
	Generation uint64          // from before Sent
}

// Note keeps the denial of a key under these policies, until a call would pass or
// Longest has passed, and unless this process changes the key. The policies and
// the denial's slices become the cache's.
func (s *Set) Note(g *backend.Group, d Denial) {
	if len(g.Key) > keyMax {
		return
	}
	s.add(&entry{
		key:        strings.Clone(g.Key), // or it would keep what it was cut from
		sub:        strings.Clone(g.Sub),
		policies:   g.Policies,
		costs:      d.Costs,
		states:     d.States,
		sent:       d.Sent,
		told:       d.Told,
		ends:       d.Sent + min(d.Lasts, Longest), // mutant: denial-ends
		lasting:    d.Lasts > Longest,
		generation: d.Generation,
		refreshed:  make(chan struct{}),
	}, d.Told)
}

// of reports whether the entry is of g's key and policies, by their numbers. What
// a policy does on failure does not matter here.
func (e *entry) of(g *question) bool {
	n := len(e.policies)
	if e.key != g.Key || e.sub != g.Sub || len(g.Policies) != n || g.Costs != nil && len(g.Costs) != n {
		return false
	}
	if &e.policies[0] == &g.Policies[0] { // nearly always: the limiter's own list
		return true
	}
	for i := range g.Policies {
		a, b := &e.policies[i], &g.Policies[i]
		if a.Name != b.Name || a.Algorithm != b.Algorithm || a.Shards != b.Shards { // mutant: denied-algorithms
			return false
		}
	}
	return true
}

// denies reports whether, while the entry holds, g is denied too: a call that
// costs no less of any policy has no more room.
func (e *entry) denies(g *question) bool { return e.of(g) && AtLeast(g, e.costs) }

// covers reports whether the entry answers all that the other would.
func (e *entry) covers(other *entry) bool {
	return e.ends >= other.ends &&
		e.denies(&question{Key: other.key, Sub: other.sub, Policies: other.policies, Costs: other.costs})
}

// AtLeast reports whether g costs no less of any policy.
func AtLeast(g *backend.Group, costs []int64) bool {
	for i := range costs {
		if g.CostOf(i) < costs[i] { // mutant: denied-costs
			return false
		}
	}
	return true
}

// Costs returns what g costs each of its policies.
func Costs(g *backend.Group) []int64 {
	costs := make([]int64, len(g.Policies))
	for i := range costs {
		costs[i] = g.CostOf(i)
	}
	return costs
}

// refreshes reports whether the caller is to refresh the denial: one caller, in
// the last quarter of the time for which a denial holds, where the store denies
// for longer. So a flood on a spent key asks about once per second.
func (e *entry) refreshes(now, ttl time.Duration) bool {
	long := e.lasting || e.ends > e.sent+ttl
	return long && now >= e.sent+ttl*3/4 && e.refreshing.CompareAndSwap(false, true) // mutant: one-refresh
}

// answer denies g at now.
func (e *entry) answer(g *backend.Group, d *backend.Decision, now time.Duration) {
	Deny(g, d, e.states, now-e.told)
	d.Source, d.Estimated = backend.FromDenyCache, true
}

// Deny writes a denial of the take g by states that are so old. Times count from
// the answer's arrival, not from the sending: then a call that waits for RetryAfter
// is not early. For a larger cost than was denied it is the least that can be said.
func Deny(g *backend.Group, d *backend.Decision, states []backend.State, age time.Duration) {
	Tell(g, d, states, age)
	g.NewReceipt(backend.NotTaken)
	d.Receipt = g.Receipt
}

// Tell writes states that are so old to g.Each, and the binding one to d.
func Tell(g *backend.Group, d *backend.Decision, states []backend.State, age time.Duration) {
	*d = backend.Decision{State: Aged(states[backend.Binding(states)], age)}
	for i := range g.Each {
		g.Each[i] = Aged(states[i], age)
	}
}

// Aged returns the state after so long, if nobody takes.
func Aged(s backend.State, age time.Duration) backend.State {
	age = max(0, age).Truncate(time.Microsecond) // a store's times are whole microseconds
	s.RetryAfter, s.ResetAfter = max(0, s.RetryAfter-age), max(0, s.ResetAfter-age)
	return s
}

// states returns a copy of the states that a decision on g came with, nil where
// they were not asked for.
func states(g *backend.Group, d *backend.Decision) []backend.State {
	switch {
	case g.Each != nil:
		return slices.Clone(g.Each)
	case len(g.Policies) == 1:
		return []backend.State{d.State}
	}
	return nil
}
