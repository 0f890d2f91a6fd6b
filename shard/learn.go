package shard

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// revive notes what a share that was spent has at least, now that the denied
// costs would pass.
func (e *entry) revive(i int, h *shut, now time.Duration) {
	for j := range h.states {
		s := &h.states[j]
		n := max(s.Remaining, h.denials[j].cost)
		if now >= h.at+s.ResetAfter {
			n = e.plan.most(i, j)
		}
		e.room(i, j, n)
	}
}

// learn notes what a sub-key answered to g, with one state a policy. Where that
// shows room for what was denied, all that followed from the denial is dropped.
// The clock is read only for what stands for a while, or ends what does.
func (e *entry) learn(i int, d *backend.Decision, states []backend.State, g *backend.Group, sent time.Duration, clock func() time.Duration) {
	for j := range states {
		e.room(i, j, states[j].Remaining)
	}
	s := &e.subs[i]
	if s.dead.Load() != nil {
		s.dead.Store(nil)
	}
	h := s.shut.Load()
	refuted := h != nil && h.refuted(states, g)
	now := time.Duration(0)
	if refuted || !d.Allowed { // mutant: take-tells-of-room
		now = clock()
	}
	if refuted {
		s.room.Store(int64(now))
	}
	switch {
	case !d.Allowed && int64(sent) < s.room.Load(): // it may be from before; mutant: denial-before-room
	case !d.Allowed:
		s.shut.Store(h.and(states, g, sent, now))
	case refuted:
		s.shut.CompareAndSwap(h, nil)
	}
	if refuted {
		e.refuse()
	}
}

// refuse drops the verdict, and any that is being drawn from what no longer
// holds: see stand.
func (e *entry) refuse() {
	e.heard.Add(1)
	if e.verdict.Load() != nil { // mutant: room-ends-verdict
		e.verdict.Store(nil)
	}
}

// stand makes v the verdict, unless room was heard of since heard was read.
func (e *entry) stand(v *verdict, heard uint64) {
	if e.verdict.Store(v); e.heard.Load() != heard { // mutant: room-ends-new-verdict
		e.verdict.CompareAndSwap(v, nil)
	}
}

// renew is for a take that passed in the i-th share, which was seen low and has
// plenty: a window has begun, for the others too. Else they would be left out
// until they come by chance. A sum reads them, and needs no guess.
func (e *entry) renew(i int, states []backend.State) {
	for j := range states {
		if more := states[j].Remaining - e.rooms[i*len(e.left)+j].Load(); more*4 > e.plan.most(i, j) {
			e.refill(i, j)
		}
	}
}

func (e *entry) refill(but, j int) {
	for i := range e.subs {
		if i != but && e.subs[i].shut.Load() == nil {
			e.room(i, j, e.plan.most(i, j))
		}
	}
}

func (e *entry) bury(i int, err error, now time.Duration) {
	e.subs[i].dead.Store(&death{now, err})
}

func costs(g *backend.Group) []int64 {
	all := make([]int64, len(g.Policies))
	for j := range all {
		all[j] = g.CostOf(j)
	}
	return all
}

// atLeast reports whether g costs no less in any policy.
func atLeast(g *backend.Group, costs []int64) bool {
	for j := range costs {
		if g.CostOf(j) < costs[j] {
			return false
		}
	}
	return true
}
