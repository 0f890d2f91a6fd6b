package shard

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// shut is what stands against asking a share. Written once.
type shut struct {
	at      time.Duration   // when the last denial of the share was heard
	sent    time.Duration   // and an instant before its request was sent
	states  []backend.State // which said this
	costs   []int64         // to a call of these costs
	denials []denial        // one a policy; the oldest may be from before
}

// denial is one policy's, and speaks of that alone: until it ends nothing that
// costs this policy as much passes in the share, whatever it costs the others.
// So calls whose costs can't be compared don't unlearn what they know of each
// other. The zero denial is none.
type denial struct {
	at, sent time.Duration // when it was heard, and before its request was sent
	retry    time.Duration
	cost     int64
}

// ends returns when a denial has lapsed: counted from the sending, when its
// share has room at the latest.
func (d *denial) ends() time.Duration { return d.sent + d.retry }

// refuted reports whether the policy has room for what was denied, by what it
// answered to a call of that cost.
func (d *denial) refuted(s *backend.State, cost int64) bool {
	return d.retry > 0 && (s.Remaining >= d.cost || s.RetryAfter == 0 && cost >= d.cost)
}

// and returns what stands against a share that denied g: of the policies that
// did this denial, of the others what stood before.
func (h *shut) and(states []backend.State, g *backend.Group, sent, now time.Duration) *shut {
	fresh := &shut{now, sent, slices.Clone(states), costs(g), make([]denial, len(states))}
	for j := range states {
		switch s := &states[j]; {
		case s.RetryAfter > 0:
			fresh.denials[j] = denial{now, sent, s.RetryAfter, g.CostOf(j)}
		case h != nil && now >= h.denials[j].at && !h.denials[j].refuted(s, g.CostOf(j)): // mutant: denials-kept
			fresh.denials[j] = h.denials[j]
		}
	}
	return fresh
}

// refuted reports whether an answer to g shows room for what was denied.
func (h *shut) refuted(states []backend.State, g *backend.Group) bool {
	for j := range h.denials {
		if h.denials[j].refuted(&states[j], g.CostOf(j)) {
			return true
		}
	}
	return false
}

// stands returns until when g is denied without asking, and by which policy's
// denial: the one that stands longest. Before all time where none speaks of g.
func (h *shut) stands(g *backend.Group) (until time.Duration, by int) {
	until = math.MinInt64
	for j := range h.denials {
		d := &h.denials[j]
		if d.retry == 0 || g.CostOf(j) < d.cost { // mutant: denials-by-cost
			continue
		}
		if t := min(d.ends(), d.at+longest); t > until { // mutant: denied-one-second
			until, by = t, j
		}
	}
	return until, by
}

// lapsed reports whether nothing stands against the share any more, or the
// clock was set back.
func (h *shut) lapsed(now time.Duration) bool {
	for j := range h.denials {
		if d := &h.denials[j]; d.retry > 0 && now < d.ends() {
			return now < h.at
		}
	}
	return true
}

// tell writes what the share says to g at now.
func (h *shut) tell(states []backend.State, g *backend.Group, now time.Duration) {
	for j := range states {
		states[j] = aged(h.states[j], now-h.at)
		states[j].RetryAfter = 0
		if d := &h.denials[j]; g.CostOf(j) >= d.cost {
			states[j].RetryAfter = aged(backend.State{RetryAfter: d.retry}, now-d.at).RetryAfter
		}
	}
}
