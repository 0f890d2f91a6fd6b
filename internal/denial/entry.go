package denial

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// entry is one denial: to whom, of what, by which numbers, and until when.
// Only refresh changes.
type entry struct {
	sub      string
	policies []backend.Policy
	costs    []int64 // one a policy
	decision backend.Decision
	each     []backend.State
	sent     time.Duration // before the request was, by the cache's clock
	told     time.Duration // when the answer had come
	lasts    time.Duration // from sent, Longest at most

	refresh chan struct{} // nil until a caller asks whether it still holds; guarded by the stripe's lock
}

func newEntry(g *backend.Group, d *backend.Decision, sent, told time.Duration) *entry {
	e := &entry{
		sub:      strings.Clone(g.Sub),
		policies: g.Policies, // never written
		costs:    make([]int64, len(g.Policies)),
		decision: *d,
		each:     slices.Clone(g.Each),
		sent:     sent,
		told:     told,
		lasts:    min(d.RetryAfter, Longest),
	}
	for i := range e.costs {
		e.costs[i] = g.CostOf(i)
	}
	if g.Each == nil { // of one policy
		e.each = []backend.State{d.State}
	}
	e.decision.Receipt = nil
	return e
}

// of reports whether the entry speaks of g's sub-key and policies, by their
// numbers. What a policy does on failure does not matter here.
func (e *entry) of(sub string, policies []backend.Policy) bool {
	if e.sub != sub || len(e.policies) != len(policies) {
		return false
	}
	if &e.policies[0] == &policies[0] { // nearly always: the limiter's own list
		return true
	}
	for i := range policies {
		if a, b := &e.policies[i], &policies[i]; a.Name != b.Name || a.Algorithm != b.Algorithm || a.Shards != b.Shards { // mutant: denied-algorithms
			return false
		}
	}
	return true
}

// denies reports whether, while the entry holds, g is denied too: who costs no
// less in any policy has no more room.
func (e *entry) denies(g *backend.Group) bool {
	if !e.of(g.Sub, g.Policies) {
		return false
	}
	for i := range e.costs {
		if g.CostOf(i) < e.costs[i] { // mutant: denied-costs
			return false
		}
	}
	return true
}

// covers reports whether the entry answers all that the other would.
func (e *entry) covers(other *entry) bool {
	return e.ends() >= other.ends() &&
		e.denies(&backend.Group{Sub: other.sub, Policies: other.policies, Costs: other.costs})
}

func (e *entry) ends() time.Duration { return e.sent + e.lasts }

// answer words the denial for g at now. Times count from the answer's arrival,
// not from the sending: then a call that waits for RetryAfter is not early.
// For a larger cost than the entry's it is the least that can be said.
func (e *entry) answer(g *backend.Group, d *backend.Decision, now time.Duration) {
	past := max(0, now-e.told).Truncate(time.Microsecond) // a store's times are whole microseconds
	for i := range g.Each {
		g.Each[i] = e.each[i]
		age(&g.Each[i], past)
	}
	*d = e.decision
	d.Source, d.Estimated = backend.FromDenyCache, true
	age(&d.State, past)
	g.NewReceipt(backend.NotTaken)
	d.Receipt = g.Receipt
}

func age(s *backend.State, past time.Duration) {
	s.RetryAfter = max(0, s.RetryAfter-past)
	s.ResetAfter = max(0, s.ResetAfter-past)
}
