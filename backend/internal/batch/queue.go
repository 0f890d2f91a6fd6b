// Package batch batches the calls to one server: many callers, one round trip.
//
// There is no timer. A lone call leaves at once, and so do the next ones, until
// as many batches are in flight as may be. Calls that come then are pending, and
// leave together when a batch comes back. So no call waits for a round trip that
// it could have used, and a busy server decides more per round trip.
package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
)

// maxCallers is the maximum number of calls that wait for one server; more are
// refused at once. A variable for the tests alone.
var maxCallers int64 = 1 << 16

// Queue holds the calls to one server until a batch takes them. It is safe for
// concurrent use.
type Queue struct {
	server *wire.Server
	ways   wire.Ways // nil: all groups of a batch go in one command
	budget time.Duration
	alone  bool // every call is a batch of its own

	callers atomic.Int64 // calls that wait for an answer

	mu struct {
		sync.Mutex
		pending list
		filling bool // a batch has its place and is about to take the pending calls
		out     int  // batches in flight that hold a place
		limit   int  // how many may
		overdue int  // batches in flight that gave their place back
		trips   trips
	}
}

// New returns the queue of a server. Where the server is a node of a cluster,
// ways leads from it to the others. Alone makes every call a batch of its own.
func New(s *wire.Server, ways wire.Ways, budget time.Duration, alone bool) *Queue {
	q := &Queue{server: s, ways: ways, budget: budget, alone: alone}
	if q.mu.limit = relaxed; alone {
		q.mu.limit = 1 << 30
	}
	return q
}

// Do decides one request, which its store has checked, on the key whose tag and
// slot are given. It returns when the decision is made, the budget is spent, or
// ctx ends. The batch stays in flight then: an impatient caller must not hide a
// frozen server.
func (q *Queue) Do(ctx context.Context, tag string, slot int, r *backend.Request, d *backend.Decision) error {
	done := ctx.Done()
	c := newCall(ctx, tag, slot, r, q.budget)
	leaves, err := q.push(c, true)
	if leaves {
		go q.run()
	}
	if err == nil {
		err = c.Wait(ctx, done, c.op)
		q.callers.Add(-1)
	}
	return c.answer(r, d, err)
}

var errCrowded = backend.Wrap(backend.ErrUnavailable, errors.New("too many calls wait for the server"))

// push puts c behind the pending calls, unless it could not be answered in time.
// It reports whether a batch may leave, where the caller is ready to run it.
func (q *Queue) push(c *call, ready bool) (leaves bool, err error) {
	n := q.callers.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > maxCallers || q.crowded(c, int(n)) { // mutant: crowd-refused
		q.callers.Add(-1)
		return false, errCrowded
	}
	q.mu.pending.push(c)
	return ready && q.place(), nil
}

// crowded reports whether c can't be answered in time behind the n calls that
// wait, even if each round trip is full and none is delayed. Such a call would
// cost the server its share of a batch and the caller its time.
func (q *Queue) crowded(c *call, n int) bool {
	perTrip := maxGroups * q.mu.limit
	if q.alone || n <= perTrip {
		return false // the common case
	}
	return q.mu.trips.link*time.Duration(perTrip+n) > (c.deadline-c.came)*time.Duration(perTrip)
}

// place takes the place of one more batch in flight, where there is one and
// calls are pending that no other batch is about to take.
func (q *Queue) place() bool {
	if q.mu.filling || q.mu.pending.first == nil || q.mu.out >= q.mu.limit || !q.connection() { // mutant: one-batch-fills
		return false
	}
	q.mu.out++
	q.mu.filling = true
	return true
}

// connection reports whether the client may have a connection for one more
// batch. One that waits for a connection could still take calls along.
func (q *Queue) connection() bool {
	n := q.mu.out + q.mu.overdue
	return q.alone || n == 0 || n < q.server.Connections(n)
}

// run sends batches for as long as calls are pending. Its first batch has its
// place.
func (q *Queue) run() {
	for {
		b := q.fill(wire.Now())
		if b == nil || !b.fly() {
			return
		}
	}
}

// fill returns the next batch, nil where no pending call needs one any more.
// Grouping takes its time, so it is not done under the lock.
func (q *Queue) fill(now time.Duration) *batch {
	q.mu.Lock()
	pending := q.mu.pending
	q.mu.pending = list{}
	b := newBatch(q)
	if t := &q.mu.trips; q.mu.out > 1 || !t.stale(now) { // else it leaves in any case, as a probe
		b.link, b.mean = t.link, t.mean
	}
	q.mu.Unlock()
	rest := b.take(pending, now)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pending.prepend(rest)
	q.mu.filling = false
	if b.calls == 0 {
		q.mu.out--
		batches.Put(b)
		b = nil
	}
	if q.place() {
		go q.run()
	}
	return b
}

// landed gives a batch's place to the next one and reports whether the caller is
// to run it. overdue says that the batch has given its place back before.
func (q *Queue) landed(overdue bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if overdue {
		q.mu.overdue--
	} else {
		q.mu.out--
	}
	return q.place()
}

// late gives the place of a batch back that is still in flight: its reply may be
// lost, and other calls must not wait for it.
func (q *Queue) late() {
	q.mu.Lock()
	q.mu.out--
	q.mu.overdue++
	leaves := q.place()
	q.mu.Unlock()
	if leaves {
		q.run()
	}
}

// note notes a round trip that was answered.
func (q *Queue) note(now time.Duration, calls, groups int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.trips.note(now, calls, groups, took)
	if !q.alone {
		q.mu.limit = q.mu.trips.limit(q.server.PoolSize())
	}
}
