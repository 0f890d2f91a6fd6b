package wait

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// turn is a waiter with what only its caller's goroutine uses.
type turn struct {
	waiter
	ctx    context.Context
	queues *Queues
	queue  *queue
	waited time.Duration // in the queue, and asleep
	burst  burst         // of the head
	limit  int64         // calls per take, at most
	cause  error         // why no store made the last decision
	free   int64         // calls that the last denied take left units for
	poll   time.Duration // the last pause before a slot was looked for; 0: none
}

// wait queues the waiter until it is decided or removed.
func (t *turn) wait() error {
	deadline, _ := t.ctx.Deadline()
	q, tooLate := t.queues.join(&t.waiter, deadline)
	if q == nil {
		return TooLate(tooLate)
	}
	t.queue = q
	if t.place != nil {
		defer t.call.Gate.leave(t.place)
	}
	defer t.queues.leave(q, &t.waiter) // does nothing if it was decided; runs also if Take panics
	select {
	case <-t.notify:
	case <-t.ctx.Done():
		//mutant:leavers-waited
		t.waited = time.Since(t.since)
		return t.leave()
	}
	t.waited = time.Since(t.since)
	if t.queues.isDecided(&t.waiter) {
		return t.err
	}
	if t.place != nil {
		return t.serveInTurn()
	}
	return t.serve()
}

// leave ends the wait of a waiter whose context has ended. If a take decided it
// meanwhile, that answer stands.
func (t *turn) leave() error {
	if !t.queues.leave(t.queue, &t.waiter) {
		return t.err
	}
	err := fmt.Errorf("headgate: left the queue, call not counted: %w", t.ctx.Err())
	if t.cause != nil {
		err = backend.Wrap(err, t.cause)
	}
	return err
}

// serve takes and sleeps, as the head of the queue, until the waiter is decided.
func (t *turn) serve() error {
	t.burst, t.limit = t.call.burst(), t.call.limit()
	for n := min(t.queue.contest.calls(t.burst.calls), t.limit); t.ctx.Err() == nil; {
		d, size, err := t.take(n)
		if err != nil || t.decided {
			return err
		}
		t.queue.contest.denied()
		if n = t.fewer(&d, size); n < size {
			continue
		}
		if size == 1 && t.isEarliest(&d) {
			if err := t.checkDeadline(d.RetryAfter); err != nil {
				return err
			}
		}
		asAnswered := d.Source == backend.FromStore && t.poll == 0
		pause, more := t.plan(&d, size)
		if !t.sleep(pause) {
			break
		}
		t.queue.contest.asAnswered = asAnswered
		n = min(size+more, t.queue.contest.calls(t.burst.calls), t.limit) // the last take left units for no more
	}
	return t.leave()
}

// serveInTurn takes and sleeps, as the head of the queue, until the waiter is decided. It
// takes while it has the turn at the call's gate. If the gate's key denies the call, it
// keeps the turn: the others would be denied too. If another key denies the call, the
// others have their turns meanwhile.
func (t *turn) serveInTurn() error {
	for t.awaitTurn() {
		d, _, err := t.take(1)
		if err != nil || t.decided {
			return err
		}
		if t.isEarliest(&d) {
			if err := t.checkDeadline(d.RetryAfter); err != nil {
				return err
			}
		}
		held := t.call.ByGate()
		//mutant:denied-heads-passed-over
		if !held {
			t.call.Gate.leave(t.place)
		}
		if !t.sleep(t.pause(&d)) {
			break
		}
		if held {
			t.place.turn <- struct{}{} // has room, since awaitTurn has taken it
		} else {
			t.call.Gate.enter(t.place)
		}
	}
	return t.leave()
}

// awaitTurn returns false if the context ended first.
func (t *turn) awaitTurn() bool {
	begin := time.Now()
	defer func() { t.waited += time.Since(begin) }()
	select {
	case <-t.place.turn:
		return t.ctx.Err() == nil
	case <-t.ctx.Done():
		return false
	}
}

// take takes for at most n waiters, and decides them if the take passes. size is the
// number of waiters that it was for.
func (t *turn) take(n int64) (d backend.Decision, size int64, err error) {
	group := t.queues.group(&t.waiter, n)
	defer t.queues.end(group)
	size = int64(len(group))
	a := answer{states: make([]backend.State, len(t.call.Policies))}
	ctx := t.ctx
	if t.queues.bounded { // or the head's context, when it ends, leaves unknown what was charged for the others
		ctx = context.WithoutCancel(ctx)
	}
	err = t.call.Take(ctx, size, &d, a.states)
	if t.cause = d.Err; err != nil {
		return d, size, err
	}
	switch {
	case d.Allowed:
		d.Granted /= size
		t.queue.contest.won(t.freeCalls(a.states), time.Since(t.since))
	//mutant:unknown-not-asked-again
	case errors.Is(d.Err, backend.ErrPerhapsCounted) && !t.call.Cancels:
		a.err = d.Err
	default:
		t.free = t.freeCalls(a.states)
		return d, size, nil
	}
	a.decision = d
	t.queues.decide(t.queue, group, a)
	return d, size, a.err
}

// freeCalls returns for how many such calls the free units suffice.
func (t *turn) freeCalls(states []backend.State) int64 {
	calls := int64(math.MaxInt64)
	for i := range states {
		if cost := t.call.cost(i); cost > 0 && !t.call.Policies[i].Shadow {
			calls = min(calls, states[i].Remaining/cost)
		}
	}
	return calls
}

// fewer returns for how many waiters to take at once after a denial. It returns fewer
// than size if the denial may not be the head's own.
func (t *turn) fewer(d *backend.Decision, size int64) int64 {
	switch {
	case size > t.burst.calls: // there were units for all, and another process took them
		return t.burst.calls
	//mutant:losers-take-the-rest
	case t.queue.contest.lost >= maxLost && t.free > 0:
		return t.free
	case !Counted(d): // a local share may be less
		return 1
	//mutant:deadline-of-head
	case !t.inTime(d.RetryAfter):
		return 1
	}
	return size
}

// plan returns how long to sleep after a denial, and for how many more waiters the next
// take is then.
func (t *turn) plan(d *backend.Decision, size int64) (pause time.Duration, more int64) {
	c := &t.queue.contest
	if c.rivals > 0 && c.lost < maxLost {
		more = max(0, t.queues.waiting(&t.waiter, t.burst.calls)-size)
	}
	pause = t.pause(d)
	later := pause + t.burst.length*time.Duration(more)/time.Duration(t.burst.calls) +
		c.delay(size+more, t.call.maxDelay(t.burst), t.burst.length, time.Since(t.since))
	//mutant:late-before-deadline
	if t.inTime(later) {
		return later, more
	}
	return pause, 0
}

// isEarliest reports whether RetryAfter is the earliest instant at which the call
// passes. A slot may become free before, lent units may come back unused, and a failure
// mode estimates.
func (t *turn) isEarliest(d *backend.Decision) bool {
	//mutant:lent-units-come-back
	return Counted(d) && !t.bySlots(d) && d.Lent == 0
}

// Counted reports whether the decision is a store's: of now, remembered, or from units
// that it has lent.
func Counted(d *backend.Decision) bool {
	switch d.Source {
	case backend.FromStore, backend.FromDenyCache, backend.FromLease:
		return d.Err == nil
	}
	return false
}

// bySlots reports whether the policy that binds counts slots.
func (t *turn) bySlots(d *backend.Decision) bool {
	for i := range t.call.Policies {
		if p := &t.call.Policies[i]; p.Name == d.Policy {
			return p.Algorithm.Kind().Leased()
		}
	}
	return false
}

// checkDeadline notes that the call passes in d at the earliest, and refuses it if its
// deadline is before that.
func (t *turn) checkDeadline(d time.Duration) error {
	t.queues.deny(&t.waiter, time.Now().Add(d))
	//mutant:deadline-refused
	if !t.inTime(d) {
		return TooLate(d)
	}
	return nil
}

// The first and the longest pause between two takes that look for a slot.
const (
	minPoll = 10 * time.Millisecond
	maxPoll = time.Second
)

// pause returns the time after which the call may pass, as far as the denial shows.
func (t *turn) pause(d *backend.Decision) time.Duration {
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

// sleep returns false if the context ended first.
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
