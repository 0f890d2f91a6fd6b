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
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/invariant"
	"github.com/headgate-go/headgate/internal/starved"
)

// Queue holds the pending calls to one server until a batch takes them. It is
// safe for concurrent use.
type Queue struct {
	server  *Server
	router  Router
	room    room         // of the batch that is filling
	ended   sync.Pool    // round trips that have ended. Their commands are most of what one allocates
	callers atomic.Int64 // calls that wait for an answer

	mu struct {
		sync.Mutex
		pending     []*call
		taken       []*call // the room of those that a batch is taking
		filling     bool    // a batch has its place and is about to take the pending calls
		outstanding int     // batches in flight
		most        int     // how many may be, times slow
		out         int     // those that hold a place: they are not overdue
		limit       int     // how many may
		recent      recent
	}
}

// Router leads to the servers of a cluster.
type Router interface {
	// Next returns the server to send a tag's command to after the server at has
	// replied err. That error shows that it did not run the command. Asking means that the
	// next server needs an ASKING first.
	Next(ctx context.Context, tag string, at *Server, err error) (to *Server, asking bool, e error)
	// Failed reports that a server did not answer, or may not be asked.
	Failed()
}

// NewQueue returns the queue of a server. Where the server is a node of a
// cluster, r leads from it to the others; else r is nil.
func NewQueue(s *Server, r Router) *Queue {
	q := &Queue{server: s, router: r, room: room{budget: s.Budget, calls: maxCalls, byTag: map[string]*group{}}}
	q.ended.New = func() any { return &roundTrip{queue: q} }
	q.mu.limit, q.mu.most = many, many*slow
	if s.DisableBatching {
		q.room.calls, q.mu.limit = 1, 1<<30
	}
	return q
}

// Do decides one request, which its store has checked, on the key whose tag is
// given. It returns when the decision is made, ctx ends, or the budget is spent, of which
// the caller has waited a part. The batch goes on: a caller that left hides no frozen server.
func (q *Queue) Do(ctx context.Context, tag string, waited time.Duration, r *backend.Request, d *backend.Decision) error {
	c := newCall(ctx, tag, waited, r, q.server.Budget)
	if q.push(c) {
		go q.run()
	}
	defer q.callers.Add(-1)
	return c.decide(ctx, r, d)
}

// Call is one of several requests that are sent at once.
type Call struct {
	Queue   *Queue
	Tag     string
	Request *backend.Request
	Answer  *backend.Answer
	Waited  time.Duration // by the caller, before; a part of the budget

	call *call
}

// DoAll decides the calls in one round trip per server, in parallel, and writes
// their answers.
//
// All calls have the same budget from now on, less what each has waited. A call that is refused,
// or whose caller leaves, does not keep the others.
func DoAll(ctx context.Context, calls []Call) {
	var leave []*Queue // after all calls are pending, so that they leave together
	for i := range calls {
		c := &calls[i]
		c.call = newCall(ctx, c.Tag, c.Waited, c.Request, c.Queue.server.Budget)
		if c.Queue.push(c.call) {
			leave = append(leave, c.Queue)
		}
	}
	for _, q := range leave {
		go q.run()
	}
	for i := range calls {
		c := &calls[i]
		c.Answer.Err = c.call.decide(ctx, c.Request, &c.Answer.Decision)
		c.Queue.callers.Add(-1)
	}
}

var errCrowded = backend.Wrap(backend.ErrUnavailable, errors.New("too many calls wait for the server"))

// push puts c behind the pending calls, or refuses it. It reports whether the
// caller is to run a batch.
func (q *Queue) push(c *call) (leaves bool) {
	if q.callers.Add(1) > maxCallers {
		c.refuse(errCrowded)
		return false
	}
	if err := q.refusal(); err != nil {
		c.refuse(err)
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.pending = append(q.mu.pending, c)
	return q.place()
}

// refusal returns why the circuit of the server refuses round trips, nil while it lets
// them through. A call that is refused here costs no batch. On a starved host the batch waits.
func (q *Queue) refusal() error {
	err := q.server.shut.Load()
	//mutant:refusal-waits-for-processor
	if err == nil || starved.Host() {
		return nil
	}
	//mutant:refusal-ends
	if !q.server.listen() {
		q.server.shut.Store(nil)
		return nil
	}
	if q.router != nil {
		q.router.Failed()
	}
	return *err
}

// place takes the place of one more batch in flight. It does so if there is one and
// calls are pending that no other batch is about to take. A batch that waits for a
// connection could still take calls along.
func (q *Queue) place() bool {
	full := q.mu.out >= q.mu.limit || q.mu.outstanding >= q.mu.most/slow
	//mutant:one-batch-fills
	if q.mu.filling || full || len(q.mu.pending) == 0 {
		return false
	}
	q.mu.out++
	q.mu.outstanding++
	q.mu.filling = true
	return true
}

// run sends batches for as long as calls are pending. Its first batch has its
// place.
//
// It ends when no call is pending, or no place is free: an idle queue has no goroutine.
func (q *Queue) run() {
	grow()
	for more := true; more; {
		t, late := q.fill()
		took, ok := t.run(late)
		switch {
		case took > 0:
			if waiting := q.answered(t, took); t.calls > max(waiting, 1) {
				// Callers that have just been answered may call again at once: they join
				// the batch that leaves next, unless as many wait for that.
				runtime.Gosched()
			}
		case t.failed:
			q.lost()
		}
		if more = q.yield(t, true); ok {
			q.ended.Put(t)
		}
	}
}

// grow makes the goroutine's stack as large as the client needs, while there is little on
// it to copy. To grow it by steps, deep in the client, took an eighth of a lone call's time.
//
//go:noinline
func grow() byte {
	var stack [stackSize]byte
	return stack[len(os.Args)%stackSize]
}

// stackSize is more than go-redis uses.
const stackSize = 8 << 10

// fill returns the next batch and how long it keeps its place. It has no calls where no
// pending one needs it any more. Grouping takes its time, so it is not done under
// the lock.
func (q *Queue) fill() (t *roundTrip, late time.Duration) {
	t = q.ended.Get().(*roundTrip)
	q.mu.Lock()
	pending, recent := q.mu.pending, q.mu.recent
	q.mu.pending = q.mu.taken[:0]
	q.mu.Unlock()
	rest := t.take(pending, &q.room, now(), recent.mean, q.server.link.fresh())
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(rest) <= len(pending)/2 { // else no copy: there may be tens of thousands
		rest = pending[:copy(pending, rest)]
	}
	q.mu.taken, q.mu.pending = q.mu.pending, append(rest, q.mu.pending...)
	if invariant.Checked {
		invariant.Holds(q.mu.filling, "a batch fills alone")
	}
	q.mu.filling = false
	t.placed, t.outstanding = true, true
	if q.place() {
		go q.run()
	}
	return t, recent.overdue(q.server.Budget)
}

// answered is where a round trip has ended whose calls, keys and duration are
// known. It returns how many calls are pending.
//
// One more answer raises the number of batches that may be in flight by a fraction, see
// slow.
func (q *Queue) answered(t *roundTrip, took time.Duration) (pending int) {
	connections := client.Connections(q.server.client)
	q.mu.Lock()
	q.mu.recent.add(now(), t.calls, took)
	//mutant:calls-wait-for-connections
	q.mu.most = min(q.mu.most+1, connections*slow)
	if !q.server.DisableBatching {
		q.mu.limit = q.mu.recent.limit()
	}
	pending = len(q.mu.pending)
	q.mu.Unlock()
	q.server.Shared.Batch(backend.Batch{Node: q.server.Node, Calls: t.calls, Keys: len(t.groups)}, took)
	return pending
}

// lost is where a round trip has ended without an answer, and as a rule its connection
// with it.
func (q *Queue) lost() {
	q.mu.Lock()
	defer q.mu.Unlock()
	//mutant:fewer-after-loss
	q.mu.most = max(q.mu.most-slow, min(q.mu.most, many*slow))
}

// missed is where a round trip has missed its deadline. Until one is answered the pending calls
// leave in one batch at a time. The server is behind, and small batches would keep it so: it
// works for callers that have left.
func (q *Queue) missed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	//mutant:missed-deadlines-merge
	if !q.server.DisableBatching {
		q.mu.limit = 1
	}
}

// yield gives the place of a batch that is overdue or over to the next one, and
// reports whether the caller is to run that.
func (q *Queue) yield(t *roundTrip, over bool) (leaves bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.placed {
		t.placed = false
		q.mu.out--
	}
	if over && t.outstanding {
		t.outstanding = false
		q.mu.outstanding--
	}
	if invariant.Checked {
		invariant.Holds(q.mu.out >= 0 && q.mu.out <= q.mu.outstanding, "a batch that holds a place is in flight")
	}
	return q.place()
}
