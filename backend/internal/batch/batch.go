package batch

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
)

// The bounds of a batch: what one round trip may cost the server, while
// everybody else waits for it.
const (
	maxGroups   = 128
	maxPolicies = 256  // of all groups
	maxCalls    = 1024 // of all groups
)

// batch is the calls of one round trip.
type batch struct {
	q        *Queue
	trip     *wire.Trip
	deadline time.Duration // of its first call's budget
	first    time.Duration // when that came

	// The last group of each tag, by one more than its index, and for each group
	// the one of its tag before it.
	named map[string]int
	twins []int

	link, mean    time.Duration // how long a round trip takes at least, and on average
	calls, groups int
	policies      int // of its groups

	overdue, expired func() // made once
}

// batches are the ones that are not in use.
var batches sync.Pool

func newBatch(q *Queue) *batch {
	b, _ := batches.Get().(*batch)
	if b == nil {
		b = &batch{trip: &wire.Trip{}, named: map[string]int{}}
		b.overdue, b.expired = func() { b.q.late() }, b.expire
	}
	b.q, b.calls, b.groups, b.policies = q, 0, 0, 0
	b.link, b.mean = 0, 0
	return b
}

var errLate = backend.Wrap(backend.ErrUnavailable, errors.New("the call could not be answered in time"))

// take takes pending calls while there is room, and returns the rest. A call
// whose caller has left is dropped, and one that is too late is refused.
func (b *batch) take(pending list, now time.Duration) (rest list) {
	for c := pending.first; c != nil; {
		next := c.next
		switch {
		case c.Left(): // mutant: left-calls-not-sent
		case b.late(c, now): // mutant: late-calls-refused
			c.Refuse(errLate)
		case b.join(c):
			if b.q.alone {
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
		b.first, b.deadline = c.came, wire.Deadline(c.came, b.q.budget)
	} else if b.calls >= maxCalls || c.came-b.first > b.q.budget/8 {
		return false
	}
	if g := b.group(c); g != nil {
		g.Takes = append(g.Takes, &c.Take)
		b.calls++
		return true
	}
	if b.groups > 0 && (b.groups >= maxGroups || b.policies+len(c.policies) > maxPolicies) {
		return false
	}
	b.add(c)
	return true
}

// add adds a group.
func (b *batch) add(c *call) {
	g := b.trip.Add()
	g.Op, g.Key, g.Tag, g.Slot, g.Policies = c.op, c.key, c.tag, c.slot, c.policies
	g.Takes = append(g.Takes, &c.Take)
	b.twins = append(b.twins[:b.groups], b.named[c.tag])
	b.named[c.tag] = b.groups + 1
	b.calls++
	b.groups++
	b.policies += len(c.policies)
}

// group returns the group that c may join: its key's calls for one operation by
// one list of policies.
func (b *batch) group(c *call) *wire.Group {
	for i := b.named[c.tag]; i > 0; i = b.twins[i-1] { // mutant: group-after-others
		g := b.trip.Groups()[i-1]
		if g.Op == c.op && len(g.Policies) == len(c.policies) && &g.Policies[0] == &c.policies[0] { // mutant: groups-by-op-and-list
			return g
		}
	}
	return nil
}

// fly makes the round trip and reports whether the caller is to run the batch
// that leaves next.
func (b *batch) fly() bool {
	q, calls, groups, begin := b.q, b.calls, b.groups, wire.Now()
	flight := wire.Flight{Server: q.server, Ways: q.ways, Begin: begin, Deadline: b.deadline, Expired: b.expired, Overdue: b.overdue}
	q.mu.Lock()
	flight.Late = begin + q.mu.trips.overdue(q.budget)
	q.mu.Unlock()
	end := b.trip.Fly(&flight)
	if end.Expired {
		return false // expire has let the next batch leave, or will
	}
	if end.Took > 0 {
		q.note(wire.Now(), calls, groups, end.Took)
		q.server.Answered(calls, groups, end.Took)
	}
	if end.Reusable {
		clear(b.named)
		batches.Put(b)
	}
	if calls > 1 {
		// Callers that have just been answered may call again at once: they join
		// the batch that leaves next.
		runtime.Gosched()
	}
	return q.landed(end.Late)
}

// expire runs when the deadline of a batch has passed. The client may hang for
// longer, but nobody waits for it.
func (b *batch) expire() {
	if b.q.landed(b.trip.Overran()) {
		b.q.run()
	}
}
