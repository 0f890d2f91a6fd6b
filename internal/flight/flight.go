// Package flight lets calls that go to one server ride together: many callers,
// one round trip.
//
// There is no timer. A lone call goes out at once, and so do the next, until as
// many flights are out as may be; only then calls gather, and what has gathered
// leaves when a flight lands. So no call waits for a round trip that it could
// have used, and the busier the server, the more it decides in one go.
package flight

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
)

// Queue is where calls wait for a flight to one server. Safe for concurrent
// use.
type Queue struct {
	server *script.Server
	ways   script.Ways // nil: all groups of a flight go in one command
	budget time.Duration
	most   int32 // flights that may be out while they are not crowded
	afar   int32 // and where the server is far away

	inbox   inbox
	out     atomic.Int32 // flights that are out
	limit   atomic.Int32 // flights that may be out now
	hurry   atomic.Int64 // as script.Now: until when nobody waits for a turn
	hurried atomic.Int64 // for how long, the last time; half of that after each short turn

	mu struct {
		sync.Mutex
		trips   trips
		share   int      // groups that a flight may carry now
		waiting []*batch // oldest first
	}
}

// New returns the queue of a server. Where it is a node of a cluster, ways says
// how to get from it to the others. Alone makes every call a flight of its own.
func New(s *script.Server, ways script.Ways, budget time.Duration, alone bool) *Queue {
	q := &Queue{server: s, ways: ways, budget: budget, most: out, afar: afar}
	if n := int32(s.PoolSize()); n > 0 { // a flight without a connection only waits for one
		q.most, q.afar = min(q.most, n), min(q.afar, n)
	}
	if alone {
		q.most = all
	}
	q.limit.Store(q.most)
	q.mu.share = keys
	return q
}

// Do decides one request, which its store has checked, on the key whose tag and
// slot are given. It returns when the decision is made, its budget is spent,
// or ctx ends. The flight goes on then: an impatient caller must not hide a
// frozen server.
func (q *Queue) Do(ctx context.Context, tag string, slot int, r *backend.Request, d *backend.Decision) error {
	done := ctx.Done() // now, while nobody waits for this call: it may be the caller's own code, and panic
	c := enter(tag, slot, r)
	b, err := q.board(c, false)
	switch {
	case b == nil:
	case done == nil && q.server.Prompt(b.first):
		// Nothing but the deadline could end the wait, and the client keeps that.
		b.inline()
	default:
		go b.run()
	}
	if err == nil {
		err = c.Wait(ctx, done, c.op)
	}
	return c.answer(r, d, err)
}

// board puts c on a flight that may leave now and returns that, if there may be
// one: open, where others will join it. Else c is on one that waits.
func (q *Queue) board(c *rider, open bool) (*batch, error) {
	c.came = script.Now()
	if q.inbox.waits.Load() == 0 && q.leave() { // nobody overtakes who waits
		b := q.batch(c.came)
		b.add(c, open)
		return b, nil
	}
	n := q.inbox.push(c)
	if n > most {
		return nil, fmt.Errorf("%w: %d calls wait for the server", backend.ErrUnavailable, most)
	}
	if n%every == 0 && q.mu.TryLock() {
		q.seatAll()
		q.mu.Unlock()
	}
	if q.out.Load() < q.limit.Load() { // a flight has landed meanwhile, and may not have seen c
		q.mu.Lock()
		b := q.next()
		q.mu.Unlock()
		if b != nil {
			go b.run()
		}
	}
	return nil, nil
}

// leave takes the place of one more flight that is out, if there is one.
func (q *Queue) leave() bool {
	for {
		n := q.out.Load()
		if n >= q.limit.Load() {
			return false
		}
		if q.out.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// note notes a round trip that carried so many calls in so many groups, and
// took so long. It reports whether the flight that leaves next is full.
func (q *Queue) note(now time.Duration, calls, groups int, took time.Duration) (full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seatAll()
	waiting := q.gathered()
	q.mu.trips.note(now, calls, groups, waiting, took)
	limit, share := q.crowded()
	q.limit.Store(limit)
	q.mu.share = share
	return waiting >= share
}

// gathered is how many groups wait.
func (q *Queue) gathered() (groups int) {
	for _, b := range q.mu.waiting {
		groups += b.groups
	}
	return groups
}

// landed frees a flight's place and returns what leaves in it, nil where
// nothing does.
func (q *Queue) landed() *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out.Add(-1) // before next looks into the inbox: who comes after that sees that one may leave
	return q.next()
}

// next returns a flight that may leave now, nil where none waits. Where several
// may, the others leave: what waits never waits for a flight that left later
// than it came.
func (q *Queue) next() (next *batch) {
	q.seatAll()
	for len(q.mu.waiting) > 0 && q.leave() {
		if b := q.pop(); next == nil {
			next = b
		} else {
			go b.run()
		}
	}
	return next
}

// every so many calls one that waits takes the inbox' to their seats: a flight
// that lands leaves again at once then, and a server that waits for that loses
// nothing.
const every = 16

func (q *Queue) seatAll() {
	for c := q.inbox.take(); c != nil; {
		r := c
		c, r.next = r.next, nil
		q.seat(r)
	}
}

// seat puts c on the last flight that waits, or on one behind it.
func (q *Queue) seat(c *rider) {
	if n := len(q.mu.waiting); n > 0 && q.mu.waiting[n-1].join(c, q.mu.share) {
		return
	}
	b := q.batch(c.came)
	b.add(c, true)
	q.mu.waiting = append(q.mu.waiting, b)
}

func (q *Queue) pop() *batch {
	b := q.mu.waiting[0]
	n := copy(q.mu.waiting, q.mu.waiting[1:])
	q.mu.waiting[n] = nil
	q.mu.waiting = q.mu.waiting[:n]
	q.inbox.waits.Add(-int64(b.calls))
	return b
}
