package headgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Wait waits until the call passes. It decides as Do does, and returns a decision that
// is Allowed, or an error and nothing was taken.
//
// Waiters of one process on one key pass in the order of their arrival, whatever
// limiter on the store they came by, where its policies count alike. A call that costs
// little waits behind one that costs much. Queues of several processes have no order
// among each other. They share what there is about evenly where their calls cost the
// same.
//
// The first waiter asks the store and sleeps until there is room, for itself and for
// those behind it that ask for the same: for up to 150 ms more than it needs alone.
// What is given back meanwhile, by a Reset or a settlement, shows when it wakes.
//
// A call that surely can't pass before the deadline of ctx is refused at once, with a
// *DeadlineError. A waiter whose ctx ends leaves, and takes nothing. A cost that can
// never pass is ErrNeverAdmissible at once.
//
// Where the store did not decide, the policies' failure modes do. FailOpen passes.
// FailClosed and FailLocal wait on, and ask again when the decision says so: until the
// store answers or ctx ends. Where the call was perhaps counted Wait returns an error,
// since to ask again might charge it twice.
func (l *Limiter) Wait(ctx context.Context, c Call) (Decision, error) {
	w := &waiter{limiter: l, call: c}
	err := l.wait(ctx, w)
	return w.decision, err
}

// WaitReserve is Reserve for a call that waits as Wait does, in the same queue. Slots
// of InFlight policies come free without notice: the first waiter asks for one at
// least each second.
func (l *Limiter) WaitReserve(ctx context.Context, c Call) (*Reservation, Decision, error) {
	w := &waiter{limiter: l, call: c, reserves: true}
	if err := l.wait(ctx, w); err != nil {
		return &Reservation{}, Decision{}, err
	}
	return w.reservation, w.decision, nil
}

// wait queues the waiter and fills its answer.
func (l *Limiter) wait(ctx context.Context, w *waiter) error {
	w.since = time.Now()
	t := turn{waiter: w, ctx: ctx}
	err := t.wait()
	if err != nil {
		w.decision = Decision{}
	} else if w.call.Each != nil {
		copy(w.call.Each, w.states)
	}
	if l.observer != nil {
		op := backend.Take
		if w.reserves {
			op = backend.Reserve
		}
		l.observe(Event{
			Type: EventDecision, Op: op, Key: w.call.Key, Decision: w.decision, Err: err,
			Duration: time.Since(w.since), StoreTime: time.Duration(t.storeTime.Load()), Waited: t.waited,
		}, w.states)
	}
	return err
}

// turn is a waiter as its caller's goroutine sees it.
type turn struct {
	*waiter
	ctx       context.Context
	queue     *queue
	waited    time.Duration // for the turn, and asleep
	storeTime atomic.Int64
	cause     error         // why the store did not decide, the last time
	rest      int64         // calls for which the last take found room and was denied
	poll      time.Duration // the next sleep where room comes without notice
}

func (t *turn) wait() error {
	if err := t.check(); err != nil {
		return err
	}
	t.notify = make(chan struct{}, 1)
	deadline, _ := t.ctx.Deadline()
	qs := t.limiter.queues
	q, refused := qs.join(t.waiter, deadline)
	if q == nil {
		return &DeadlineError{refused}
	}
	t.queue = q
	defer qs.leave(q, t.waiter) // nothing where it was decided; also if the store panics
	select {
	case <-t.notify:
	case <-t.ctx.Done():
		t.waited = time.Since(t.since) // mutant: leavers-waited
		return t.left()
	}
	t.waited = time.Since(t.since)
	if qs.isDecided(t.waiter) {
		return t.err
	}
	return t.serve()
}

// check refuses what can never pass.
func (t *turn) check() error {
	if t.limiter.shard == nil {
		return errZero
	}
	r := backend.Request{Op: backend.Take}
	r.Key, r.Policies, r.Cost, r.Costs, r.Each = t.call.Key, t.limiter.policies, 1, t.call.Costs, t.call.Each
	if t.reserves {
		r.Op, r.Lease = backend.Reserve, &backend.Lease{ID: backend.LeaseID{1}, Length: t.call.lease()}
	}
	return t.limiter.shard.CheckRequest(t.ctx, &r)
}

// left returns the error of a waiter whose context has ended, or its answer where a
// take was under way that decided it.
func (t *turn) left() error {
	if !t.limiter.queues.leave(t.queue, t.waiter) {
		return t.err
	}
	err := fmt.Errorf("headgate: left the queue, call not counted: %w", t.ctx.Err())
	if t.cause != nil {
		err = backend.Wrap(err, t.cause)
	}
	return err
}

// serve asks the store, as the head of the queue, until the waiter is decided.
func (t *turn) serve() error {
	round, length := t.round()
	most := t.most()
	for n := min(t.queue.calls(round), most); t.ctx.Err() == nil; {
		d, size, err := t.ask(n)
		if err != nil || t.decided {
			return err
		}
		t.queue.denied()
		if n = t.fewer(&d, size, round); n < size {
			continue
		}
		if size == 1 && t.isSure(&d) {
			if err := t.bound(&d); err != nil {
				return err
			}
		}
		told, more := d.Source == backend.FromStore && t.poll == 0, int64(0)
		if t.queue.rivals > 0 && t.queue.lost < maxLost {
			more = max(0, t.limiter.queues.waiting(t.waiter, round)-size)
		}
		pause := t.pause(&d)
		later := pause + length*time.Duration(more)/time.Duration(round) + t.queue.late(size+more, t.spread(length), length, time.Since(t.since))
		if t.inTime(later) { // mutant: late-before-deadline
			pause = later
		} else {
			more = 0
		}
		if !t.sleep(pause) {
			break
		}
		t.queue.told = told
		n = min(size+more, t.queue.calls(round), most) // there is room for no more
	}
	return t.left()
}

// ask takes for at most n waiters, and decides them where the take passes. size is for
// how many it was.
func (t *turn) ask(n int64) (d Decision, size int64, err error) {
	qs := t.limiter.queues
	group := qs.group(t.waiter, n)
	defer qs.end(group)
	size = int64(len(group))
	a := answer{states: make([]State, len(t.limiter.policies))}
	ctx := t.ctx
	if qs.bounded { // or a waiter that leaves might have been charged
		ctx = context.WithoutCancel(ctx)
	}
	if t.reserves {
		a.reservation, err = t.limiter.reserve(ctx, &Call{t.call.Key, t.call.Costs, a.states, t.call.Lease}, &d, t.hand)
	} else {
		q := t.limiter.ask(backend.Take, t.call.Key)
		q.request.Cost, q.request.Costs, q.request.Each = size, t.costs(size), a.states
		err = t.hand(ctx, q, &d)
	}
	if t.cause = d.Err; err != nil {
		return d, size, err
	}
	switch {
	case d.Allowed:
		d.Granted /= size
		t.queue.won(t.room(a.states), time.Since(t.since))
	case errors.Is(d.Err, ErrPerhapsCounted) && !t.reserves: // mutant: unknown-not-asked-again
		a.err = d.Err
	default:
		t.rest = t.room(a.states)
		return d, size, nil
	}
	a.decision = d
	qs.decide(t.queue, group, a)
	return d, size, a.err
}

// hand passes a question on without an event, and frees it.
func (t *turn) hand(ctx context.Context, q *question, d *Decision) error {
	if t.limiter.observer != nil {
		q.request.StoreTime = &t.storeTime
	}
	err := t.limiter.hand(ctx, q)
	if err == nil {
		*d = q.decision
	}
	q.free()
	return err
}

// costs returns the costs of so many calls; nil where each policy is charged as many.
func (t *turn) costs(calls int64) []int64 {
	costs := slices.Clone(t.call.Costs)
	for i := range costs {
		costs[i] *= calls
	}
	return costs
}

// room returns for how many such calls there is room.
func (t *turn) room(states []State) int64 {
	room := int64(math.MaxInt64)
	for i := range states {
		if cost := t.cost(i); cost > 0 && !t.limiter.policies[i].Shadow {
			room = min(room, states[i].Remaining/cost)
		}
	}
	return room
}

// fewer returns for how many waiters to ask at once after a denial: fewer where the
// denial says nothing of the head alone.
func (t *turn) fewer(d *Decision, size, round int64) int64 {
	switch {
	case size > round: // there was room, and another process took it
		return round
	case t.queue.lost >= maxLost && t.rest > 0: // mutant: losers-take-the-rest
		return t.rest
	case !counted(d): // a local share may be less
		return 1
	case !t.inTime(d.RetryAfter): // mutant: deadline-of-head
		return 1
	}
	return size
}

// isSure reports whether RetryAfter is when the call passes at the earliest. Slots may
// be free at any time, and a failure mode only guesses.
func (t *turn) isSure(d *Decision) bool { return counted(d) && !t.bySlots(d) }

func (t *turn) bySlots(d *Decision) bool {
	for i := range t.limiter.policies {
		if p := &t.limiter.policies[i]; p.Name == d.Policy {
			return p.Algorithm.Kind().Leased()
		}
	}
	return false
}

// bound notes when the call passes at the earliest, and refuses one that has to pass
// earlier.
func (t *turn) bound(d *Decision) error {
	t.limiter.queues.deny(t.waiter, time.Now().Add(d.RetryAfter))
	if !t.inTime(d.RetryAfter) { // mutant: deadline-refused
		return &DeadlineError{d.RetryAfter}
	}
	return nil
}

// How often a head asks for slots: first and last pause.
const (
	minPoll = 10 * time.Millisecond
	maxPoll = time.Second
)

// pause returns how long to sleep after a denial.
func (t *turn) pause(d *Decision) time.Duration {
	if !t.bySlots(d) {
		t.poll = 0
		return max(d.RetryAfter, time.Microsecond)
	}
	t.poll = min(max(minPoll, 2*t.poll), maxPoll)
	return min(d.RetryAfter, t.poll)
}

// inTime reports whether the context ends no sooner than in d.
func (t *turn) inTime(d time.Duration) bool {
	deadline, ok := t.ctx.Deadline()
	return !ok || time.Until(deadline) >= d
}

// sleep returns false where the context ended first.
func (t *turn) sleep(d time.Duration) bool {
	begin, timer := time.Now(), time.NewTimer(d)
	defer timer.Stop()
	defer func() { t.waited += time.Since(begin) }()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}
