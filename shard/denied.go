package shard

import (
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
)

// denied is a share's last denial. Written once. It holds for every call that costs
// its binding policy as much, whatever the call costs the others.
type denied struct {
	told, sent time.Duration   // when its answer had come, and before its request was sent
	states     []backend.State // one per policy, as of told
	costs      []int64         // of the call that it denied
	by         int             // the binding policy
}

func newDenied(states []backend.State, g *backend.Group, sent, told time.Duration) *denied {
	return &denied{told, sent, slices.Clone(states), denial.Costs(g), backend.Binding(states)}
}

// ends returns the instant at which the share has room at the latest. It counts from
// the sending: the store's answer is of a later instant.
func (d *denied) ends() time.Duration { return d.sent + d.states[d.by].RetryAfter }

// until returns the instant up to which g is denied without asking, before all time
// where it is not.
func (d *denied) until(g *backend.Group) time.Duration {
	if g.CostOf(d.by) < d.costs[d.by] { // mutant: denials-by-cost
		return math.MinInt64
	}
	return min(d.ends(), d.sent+denial.Longest) // mutant: denied-one-second
}

// refuted reports whether an answer to g shows room for what was denied: the binding
// policy has as much left, or had no objection to a call that costs no less. Another
// process has reset the key, raised its limit or given something back.
func (d *denied) refuted(states []backend.State, g *backend.Group) bool {
	s, cost := &states[d.by], d.costs[d.by]
	return s.Remaining >= cost || s.RetryAfter == 0 && g.CostOf(d.by) >= cost
}

// room returns what a policy's share has at least, once the denial has ended; full
// is all of it. What was denied passes then, if no other process was faster.
func (d *denied) room(j int, full int64, now time.Duration) int64 {
	switch s := &d.states[j]; {
	case now >= d.told+s.ResetAfter:
		return full
	case s.RetryAfter > 0:
		return max(s.Remaining, d.costs[j])
	default:
		return s.Remaining
	}
}

// tell writes what the share says to g at now. A policy that g costs less than it
// denied may have room, so it gets no RetryAfter.
func (d *denied) tell(states []backend.State, g *backend.Group, now time.Duration) {
	for j := range states {
		states[j] = denial.Aged(d.states[j], now-d.told)
		if g.CostOf(j) < d.costs[j] {
			states[j].RetryAfter = 0
		}
	}
}
