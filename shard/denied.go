package shard

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
)

// denied is what a share's denials say. Written once.
type denied struct {
	told     time.Duration   // when the answer of the last denial had come
	sent     time.Duration   // and an instant before its request was sent
	states   []backend.State // one per policy, as of told
	costs    []int64         // of the call that it denied
	policies []refusal       // one per policy; some may be of an earlier denial
}

// refusal is that of one policy: until it ends nothing that costs this policy as
// much passes in the share, whatever it costs the others. So calls whose costs
// can't be compared don't replace each other's. The zero refusal is none.
type refusal struct {
	told, sent, retry time.Duration
	cost              int64
}

// ends returns the instant at which the share has room at the latest: counted from
// the sending.
func (r *refusal) ends() time.Duration { return r.sent + r.retry }

// refuted reports whether the policy has room for what was refused, by what it
// answered to a call of that cost.
func (r *refusal) refuted(s *backend.State, cost int64) bool {
	return r.retry > 0 && (s.Remaining >= r.cost || s.RetryAfter == 0 && cost >= r.cost)
}

// and returns what a denial of g says: of the policies that refused it, and of the
// others what h said.
func (h *denied) and(states []backend.State, g *backend.Group, sent, told time.Duration) *denied {
	d := &denied{told, sent, slices.Clone(states), denial.Costs(g), make([]refusal, len(states))}
	for j := range states {
		switch s := &states[j]; {
		case s.RetryAfter > 0:
			d.policies[j] = refusal{told, sent, s.RetryAfter, g.CostOf(j)}
		case h != nil && !h.policies[j].refuted(s, g.CostOf(j)): // mutant: denials-kept
			d.policies[j] = h.policies[j]
		}
	}
	return d
}

// refuted reports whether an answer to g shows room for what was denied.
func (h *denied) refuted(states []backend.State, g *backend.Group) bool {
	for j := range h.policies {
		if h.policies[j].refuted(&states[j], g.CostOf(j)) {
			return true
		}
	}
	return false
}

// until returns the instant up to which g is denied without asking, and the policy
// that refuses it for longest; before all time where none does.
func (h *denied) until(g *backend.Group) (until time.Duration, by int) {
	until = math.MinInt64
	for j := range h.policies {
		r := &h.policies[j]
		if r.retry == 0 || g.CostOf(j) < r.cost { // mutant: denials-by-cost
			continue
		}
		if t := r.sent + min(r.retry, denial.Longest); t > until { // mutant: denied-one-second
			until, by = t, j
		}
	}
	return until, by
}

// lapsed reports whether the share has room again for all that was denied.
func (h *denied) lapsed(now time.Duration) bool {
	for j := range h.policies {
		if r := &h.policies[j]; r.retry > 0 && now < r.ends() {
			return false
		}
	}
	return true
}

// room returns what a policy's share has at least, once the denial has lapsed; full
// is all of it.
func (h *denied) room(j int, full int64, now time.Duration) int64 {
	if s := &h.states[j]; now < h.told+s.ResetAfter {
		return max(s.Remaining, h.policies[j].cost)
	}
	return full
}

// tell writes what the share says to g at now.
func (h *denied) tell(states []backend.State, g *backend.Group, now time.Duration) {
	for j := range states {
		states[j] = denial.Aged(h.states[j], now-h.told)
		states[j].RetryAfter = 0
		if r := &h.policies[j]; g.CostOf(j) >= r.cost {
			states[j].RetryAfter = denial.Aged(backend.State{RetryAfter: r.retry}, now-r.told).RetryAfter
		}
	}
}
