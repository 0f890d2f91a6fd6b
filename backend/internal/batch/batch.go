package batch

import (
	"errors"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// The bounds of a batch: what one round trip may cost the server while all
// others wait for it.
const (
	maxGroups   = 128
	maxPolicies = 256  // of all groups
	maxCalls    = 1024 // of all groups
)

// batch is the calls of one round trip.
type batch struct {
	budget     time.Duration
	single     bool          // it takes one call
	link, mean time.Duration // how long a round trip takes at least, and on average

	groups   []*group
	room     *room
	byTag    map[string]*group // the queue's: one batch fills at a time
	calls    int
	policies int           // of the groups
	first    time.Duration // when its first call came, as now

	overdue, over bool // guarded by the queue's lock
}

var errLate = backend.Wrap(backend.ErrUnavailable, errors.New("the call could not be answered in time"))

// take takes pending calls while there is room, and returns the rest. A call
// whose caller has left is dropped, and one that is too late is refused.
func (b *batch) take(pending list, now time.Duration) (rest list) {
	for c := pending.first; c != nil; {
		next := c.next
		switch {
		case c.left(): // mutant: left-calls-not-sent
		case b.late(c, now): // mutant: late-calls-refused
			c.refuse(errLate)
		case b.join(c):
			if b.single {
				return list{next, pending.last}
			}
		default:
			return list{c, pending.last}
		}
		c = next
	}
	return list{}
}

// late reports whether the call has too little time left: less than the link
// takes; or less than two round trips, once half of its time has passed. So where
// calls come faster than they can be answered, the ones that go have most of their
// time left, and a busy client does not work for answers that come late.
func (b *batch) late(c *call, now time.Duration) bool {
	return c.deadline-now <= max(b.link, min(2*b.mean, (c.deadline-c.came)/2))
}

// join adds a call, if there is room: to the group of its key, where there is
// one. A call does not join one that came much earlier: the budget of the first
// is that of all.
func (b *batch) join(c *call) bool {
	if b.calls == 0 {
		b.first = c.came
	} else if b.calls >= maxCalls || c.came-b.first > b.budget/8 {
		return false
	}
	g := b.byTag[c.tag]
	for g != nil && !g.takes(c) {
		g = g.other
	}
	if g == nil {
		if b.calls > 0 && (len(b.groups) >= maxGroups || b.policies+len(c.policies) > maxPolicies) {
			return false
		}
		g = b.add(c)
	}
	g.add(c)
	b.calls++
	return true
}

// room is where the groups of a batch are. It serves one batch after the other,
// since groups are a third of what a batch allocates.
type room struct {
	groups [maxGroups]group
	list   [maxGroups]*group
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// add adds a group for c.
func (b *batch) add(c *call) *group {
	if b.room == nil {
		b.room = rooms.Get().(*room)
		b.groups = b.room.list[:0]
	}
	g := &b.room.groups[len(b.groups)]
	*g = group{}
	g.init(c)
	g.other, b.byTag[c.tag] = b.byTag[c.tag], g
	b.groups = append(b.groups, g)
	b.policies += len(c.policies)
	return g
}
