package batch

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// batch is the calls of one round trip. It is filled by take.
//
// Its groups are those of the first calls, so filling a batch allocates little.
type batch struct {
	groups   []*group
	calls    int
	policies int           // of the groups
	first    time.Duration // when its first call came, as now
}

// room is what a batch may take, and the groups that it has by their tags.
type room struct {
	budget time.Duration // maximum duration of a decision
	calls  int           // maximum number
	byTag  map[string]*group
}

var errLate = backend.Wrap(backend.ErrUnavailable, withdrawal("the call could not be answered in time"))

// take takes pending calls while there is room, and returns the rest. A call
// whose caller has left is dropped, and one that is too late is refused. A round
// trip takes mean on average, and trip at least, as far as that is known.
//
// It runs without the queue's lock. The calls are the batch's from here on: a caller that
// leaves changes only its call's state.
func (b *batch) take(pending []*call, r *room, now, mean, trip time.Duration) (rest []*call) {
	b.groups, b.calls, b.policies = b.groups[:0], 0, 0
	clear(r.byTag)
	for i, c := range pending {
		switch {
		//mutant:left-calls-not-sent
		case c.state.Load() == left:
			calls.Put(c)
		//mutant:late-calls-refused
		case c.late(now, mean):
			c.refuse(errLate)
		//mutant:short-context-not-sent
		case c.short(now, trip, r.budget):
			c.refuse(errLate)
		case !b.join(c, r):
			return pending[i:]
		}
	}
	return nil
}

// join adds a call, if there is room: to the group of its key, where there is
// one. The budget of the call that came first is that of all. So a call does not join one
// that came much earlier or later: one that has waited for its slot stands behind younger ones.
//
// The bounds are what one round trip may cost the server. A call that is too large by
// itself still goes, as the only one.
func (b *batch) join(c *call, r *room) bool {
	if b.calls == 0 {
		b.first = c.came
	} else if b.calls >= r.calls || (c.came-b.first).Abs() > r.budget/8 {
		return false
	}
	g := r.byTag[c.own.Tag]
	//mutant:groups-by-op-and-list
	for g != nil && (!g.Op.Runs() || g.And != nil || c.own.And != nil || g.Op != c.own.Op || !g.Same(c.own.Policies)) {
		g = g.other
	}
	if g == nil {
		if b.calls > 0 && (len(b.groups) >= maxGroups || b.policies+c.own.policies() > maxPolicies) {
			return false
		}
		g = &c.own
		g.other, r.byTag[g.Tag] = r.byTag[g.Tag], g
		b.groups = append(b.groups, g)
		b.policies += g.policies()
	}
	//mutant:budget-of-the-earliest
	b.first = min(b.first, c.came)
	g.calls, g.Calls = append(g.calls, c), append(g.Calls, &c.Call)
	b.calls++
	return true
}
