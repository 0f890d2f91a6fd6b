package denial

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Denial is an answer that denies.
type Denial struct {
	States     []backend.State // one per policy, as of Told
	Costs      []int64         // one per policy: calls that cost no less of any are denied
	Sent, Told time.Duration   // before the request was sent, and when its answer had come
	Lasts      time.Duration   // from Sent until the store may let the call pass
	Generation uint64          // from before Sent
}

// entry is a cached denial. Only refreshing changes.
type entry struct {
	Denial
	key, sub   string
	policies   []backend.Policy // never written
	ends       time.Duration
	refreshing atomic.Bool   // one caller asks whether the denial still holds
	refreshed  chan struct{} // closed when that caller has its answer
}

// Longest is the maximum duration for which a denial holds without a request.
const Longest = time.Second

func newEntry(g *backend.Group, d Denial) *entry {
	e := &entry{Denial: d, policies: g.Policies, refreshed: make(chan struct{})}
	e.key, e.sub = strings.Clone(g.Key), strings.Clone(g.Sub) // or they would keep what they were cut from
	e.ends = d.Sent + min(d.Lasts, Longest)                   // mutant: denial-ends
	return e
}

// of reports whether the entry is of g's key and policies, by their numbers. What
// a policy does on failure does not matter here.
func (e *entry) of(g *backend.Group) bool {
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
func (e *entry) denies(g *backend.Group) bool {
	if !e.of(g) {
		return false
	}
	for i := range e.Costs {
		if g.CostOf(i) < e.Costs[i] { // mutant: denied-costs
			return false
		}
	}
	return true
}

// covers reports whether the entry answers all that the other would.
func (e *entry) covers(other *entry) bool {
	return e.ends >= other.ends &&
		e.denies(&backend.Group{Key: other.key, Sub: other.sub, Policies: other.policies, Costs: other.Costs})
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
	return e.Lasts > ttl && now >= e.Sent+ttl*3/4 && e.refreshing.CompareAndSwap(false, true) // mutant: one-refresh
}

// answer denies g at now.
func (e *entry) answer(g *backend.Group, d *backend.Decision, now time.Duration) {
	Deny(g, d, e.States, now-e.Told)
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
