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
	"math"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
)

// out is how many flights to a server may be out at once: few calls wait for
// one that lands while the server is not crowded (bench: latency/paced).
//
// Where flights carry more than a few calls and follow each other quickly, fewer
// are out and carry more: each costs both sides what dozens of calls of one key
// do. Measured by bench's redis/hot and redis/uniform with other numbers here,
// in calls a second: 32 callers on one key 180,000 by 8, 250,000 by 4; 512
// callers on one key 950,000 by 8, 1,160,000 by 4, 1,220,000 by 2; on 100,000
// keys 246,000, 277,000, 300,000, and 200,000 by 1: the server waits for the
// client then.
const out = 8

// all is out where every call is a flight of its own.
const all = 1 << 30

// crowds are the calls a flight from above which fewer may be out, where the
// shortest round trip of late is no longer than within. Of a few calls a flight
// that is a link of less than a millisecond: of longer trips there are too few
// for it to matter what they cost, and a call that waits for one of four instead
// of eight waits for longer (bench: latency/poisson-1ms/60, p50 1.13 of
// redis_rate's without this, 1.04 with it). Of many calls it is any: there the
// trip is the server's own time.
var crowds = [...]struct {
	calls, out int
	within     time.Duration
}{{16, 2, math.MaxInt64}, {2, 4, 900 * time.Microsecond}}

// most is how many calls may wait; more are refused at once. A variable for
// the tests alone.
var most = 1 << 16

// Queue is where calls wait for a flight to one server. Safe for concurrent
// use.
type Queue struct {
	server *script.Server
	ways   script.Ways // nil: all groups of a flight go in one command
	budget time.Duration
	out    int // flights that may be out while they are not crowded

	mu struct {
		sync.Mutex
		out     int           // flights that are out
		load    int           // calls a flight, of the last dozen or so, times smooth
		least   time.Duration // the shortest round trip of late
		calls   int           // that wait
		waiting []*batch      // oldest first
	}
}

// New returns the queue of a server. Where it is a node of a cluster, ways says
// how to get from it to the others. Alone makes every call a flight of its own.
func New(s *script.Server, ways script.Ways, budget time.Duration, alone bool) *Queue {
	q := &Queue{server: s, ways: ways, budget: budget, out: out}
	if n := s.PoolSize(); n > 0 {
		q.out = min(q.out, n) // a flight without a connection only waits for one
	}
	if alone {
		q.out = all
	}
	return q
}

// takes are those that no caller has.
var takes = sync.Pool{New: func() any { return script.NewTake() }}

// Do decides one request, which its store has checked, on the key whose tag and
// slot are given. It returns when the decision is made, its budget is spent,
// or ctx ends. The flight goes on then: an impatient caller must not hide a
// frozen server.
func (q *Queue) Do(ctx context.Context, tag string, slot int, r *backend.Request) (backend.Decision, error) {
	t := take(r)
	b, err := q.board(t, tag, slot, r, false)
	switch {
	case err != nil:
	case b == nil:
		err = q.wait(ctx, t, r.Op)
	case ctx.Done() == nil && q.server.Prompt(b.first):
		// Nothing but the deadline could end the wait, and the client keeps that.
		b.inline()
		<-t.Answered
	default:
		go b.run()
		err = q.wait(ctx, t, r.Op)
	}
	return answer(t, r, err)
}

// take returns a take that asks what r does.
func take(r *backend.Request) *script.Take {
	t := takes.Get().(*script.Take)
	t.Ask(&r.Group)
	return t
}

// answer words what t met, which is nobody's then. Where there is an error the
// round trip may still hold it.
func answer(t *script.Take, r *backend.Request, err error) (d backend.Decision, _ error) {
	if err == nil {
		d, err = t.Decide(r.Op, &r.Group)
		takes.Put(t)
	}
	if err != nil {
		r.Unknown(err)
	}
	return d, err
}

// wait returns nil when t was answered, and then it is the caller's again.
func (q *Queue) wait(ctx context.Context, t *script.Take, op backend.Op) error {
	done := ctx.Done()
	if done == nil {
		<-t.Answered
		return nil
	}
	select {
	case <-t.Answered:
		return nil
	case <-done:
	}
	select {
	case <-t.Answered: // both at once: what is known is worth more
		return nil
	default:
		return t.Withdraw(ctx, op)
	}
}

// board puts t on a flight that may leave now and returns that, if there may be
// one: open, where others will join it. Else t is on one that waits.
func (q *Queue) board(t *script.Take, tag string, slot int, r *backend.Request, open bool) (*batch, error) {
	now := script.Now()
	q.mu.Lock()
	if q.mu.out < q.limit() && len(q.mu.waiting) == 0 { // nobody overtakes who waits
		q.mu.out++
		q.mu.Unlock()
		b := q.batch(now)
		if open {
			b.found(t, tag, slot, r)
		} else {
			b.add(t, tag, slot, r)
		}
		return b, nil
	}
	defer q.mu.Unlock()
	if q.mu.calls >= most {
		return nil, fmt.Errorf("%w: %d calls wait for the server", backend.ErrUnavailable, most)
	}
	q.mu.calls++
	if n := len(q.mu.waiting); n > 0 && q.mu.waiting[n-1].join(t, tag, slot, r, now) {
		return nil, nil
	}
	b := q.batch(now)
	b.found(t, tag, slot, r)
	q.mu.waiting = append(q.mu.waiting, b)
	return nil, nil
}

// smooth is how many flights weigh in the mean of their calls.
const smooth = 8

// limit is how many flights may be out now.
func (q *Queue) limit() int {
	for _, c := range crowds {
		if q.mu.load > c.calls*smooth && q.mu.least <= c.within && q.out < all {
			return min(c.out, q.out)
		}
	}
	return q.out
}

// next returns what leaves in place of a flight that has landed with so many
// calls after so long, nil where nothing does. Where more may be out than
// before, more leave: what waits never waits for a flight that left later than
// it came.
func (q *Queue) next(landed int, took time.Duration) (next *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.load += landed - q.mu.load/smooth
	q.mu.least = min(took, q.mu.least+q.mu.least/smooth+time.Microsecond)
	q.mu.out--
	for limit := q.limit(); q.mu.out < limit && len(q.mu.waiting) > 0; q.mu.out++ {
		if b := q.pop(); next == nil {
			next = b
		} else {
			go b.run()
		}
	}
	return next
}

func (q *Queue) pop() *batch {
	b := q.mu.waiting[0]
	n := copy(q.mu.waiting, q.mu.waiting[1:])
	q.mu.waiting[n] = nil
	q.mu.waiting = q.mu.waiting[:n]
	q.mu.calls -= b.calls
	return b
}
