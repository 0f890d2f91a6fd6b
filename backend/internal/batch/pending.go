// Package batch sends calls to Redis servers: pending calls become a batch, a
// batch makes a round trip, and its reply answers them. A call is charged at most
// once, whatever the client's settings and whatever is lost on the way.
//
// There is no timer. A lone call leaves at once, and so do the next ones, until
// as many batches are in flight as may be. Calls that come then are pending, and
// leave together when a batch comes back. So no call waits for a round trip that
// it could have used, and a busy server decides more per round trip.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// maxCallers is the maximum number of calls that wait for one server; more are
// refused at once. A variable for the tests alone.
var maxCallers int64 = 1 << 16

// Queue holds the pending calls to one server until a batch takes them. It is
// safe for concurrent use.
type Queue struct {
	server *Server
	router Router
	budget time.Duration
	single bool // every call is a batch of its own

	callers atomic.Int64      // calls that wait for an answer
	byTag   map[string]*group // of the batch that is filling

	mu struct {
		sync.Mutex
		pending list
		filling bool // a batch has its place and is about to take the pending calls
		out     int  // batches in flight that hold a place
		limit   int  // how many may
		overdue int  // batches in flight that gave their place back
		recent  recent
	}
}

// NewQueue returns the queue of a server. Where the server is a node of a
// cluster, r leads from it to the others; else r is nil.
func NewQueue(s *Server, r Router) *Queue {
	q := &Queue{server: s, router: r, budget: s.Budget, single: s.DisableBatching, byTag: map[string]*group{}}
	if q.mu.limit = many; q.single {
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
		err = c.wait(ctx, done)
		q.callers.Add(-1)
	}
	return c.decide(r, d, err)
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
	if q.single || n <= perTrip {
		return false // the common case
	}
	return q.mu.recent.link*time.Duration(perTrip+n) > (c.deadline-c.came)*time.Duration(perTrip)
}

// place takes the place of one more batch in flight, where there is one and
// calls are pending that no other batch is about to take.
func (q *Queue) place() bool {
	if q.mu.filling || q.mu.pending.first == nil || q.mu.out >= q.mu.limit || !q.connected() { // mutant: one-batch-fills
		return false
	}
	q.mu.out++
	q.mu.filling = true
	return true
}

// connected reports whether the client may have a connection for one more batch.
// One that waits for a connection could still take calls along.
func (q *Queue) connected() bool {
	n := q.mu.out + q.mu.overdue
	return q.single || n == 0 || n < q.server.connections(n)
}

// run sends batches for as long as calls are pending. Its first batch has its
// place.
func (q *Queue) run() {
	for more := true; more; {
		b, overdue := q.fill(now())
		more = b != nil && q.send(b, overdue)
	}
}

// fill returns the next batch and how long it keeps its place, nil where no
// pending call needs one any more. Grouping takes its time, so it is not done
// under the lock.
func (q *Queue) fill(now time.Duration) (b *batch, overdue time.Duration) {
	b = &batch{budget: q.budget, single: q.single, byTag: q.byTag}
	q.mu.Lock()
	pending := q.mu.pending
	q.mu.pending = list{}
	t := &q.mu.recent
	overdue = t.overdue(q.budget)
	if q.mu.out > 1 || !t.stale(now) { // else it leaves in any case, as a probe
		b.link, b.mean = t.link, t.mean
	}
	q.mu.Unlock()
	rest := b.take(pending, now)
	clear(q.byTag)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pending.prepend(rest)
	q.mu.filling = false
	if b.calls == 0 {
		q.mu.out--
		b = nil
	}
	if q.place() {
		go q.run()
	}
	return b, overdue
}

// send makes the batch's round trip and reports whether the caller is to run the
// batch that leaves next.
func (q *Queue) send(b *batch, overdue time.Duration) bool {
	t := newRoundTrip(q.server, q.router, b.groups, Deadline(b.first, q.budget))
	t.late = func() { q.late(b, t) }
	t.expired = func() {
		if q.ended(b) {
			q.run()
		}
	}
	took, ok := t.run(overdue)
	if !ok {
		return false // the deadline has let the next batch leave, or will
	}
	if took > 0 {
		q.answered(b, took)
	}
	if t.whole {
		rooms.Put(b.room)
	}
	if b.calls > 1 {
		// Callers that have just been answered may call again at once: they join
		// the batch that leaves next.
		runtime.Gosched()
	}
	return q.ended(b)
}

// answered is where a round trip has ended whose calls, keys and duration are
// known.
func (q *Queue) answered(b *batch, took time.Duration) {
	q.mu.Lock()
	q.mu.recent.add(now(), b.calls, len(b.groups), took)
	if !q.single {
		q.mu.limit = q.mu.recent.limit(q.server.poolSize())
	}
	q.mu.Unlock()
	q.server.Shared.Batch(backend.Batch{Node: q.server.node, Calls: b.calls, Keys: len(b.groups)}, took)
}

// ended gives a batch's place to the next one and reports whether the caller is
// to run it.
func (q *Queue) ended(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.over = true
	if b.overdue {
		q.mu.overdue--
	} else {
		q.mu.out--
	}
	return q.place()
}

// late gives the place of a batch back that is still in flight: its reply may be
// lost, and other calls must not wait for it.
func (q *Queue) late(b *batch, t *roundTrip) {
	if !t.wrote() {
		go q.server.tryDial() // mutant: dial-error-told
	}
	if q.yield(b) {
		q.run()
	}
}

func (q *Queue) yield(b *batch) (leaves bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.over || b.overdue {
		return false
	}
	b.overdue = true
	q.mu.out--
	q.mu.overdue++
	return q.place()
}
