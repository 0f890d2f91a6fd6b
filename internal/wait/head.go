package wait

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// head is a waiter with what only its caller's goroutine uses.
type head struct {
	waiter
	ctx    context.Context
	queues *Queues
	queue  *queue
	waited time.Duration // in the queue, and asleep
	burst  burst         // of the head
	limit  int64         // calls per take, at most
	cause  error         // why no store made the last decision
	lost   bool          // a take was perhaps counted: until it is cancelled it may deny the next ones
	free   int64         // calls that the last denied take left units for
	poll   time.Duration // the last pause before a slot was looked for; 0: none
}

// wait queues the waiter until it is decided or removed.
func (h *head) wait() error {
	deadline, _ := h.ctx.Deadline()
	q, tooLate := h.queues.join(&h.waiter, deadline)
	if q == nil {
		return TooLate(tooLate)
	}
	h.queue = q
	if h.place != nil {
		defer h.call.Gate.leave(h.place)
	}
	defer h.queues.leave(q, &h.waiter) // does nothing if it was decided; runs also if Take panics
	select {
	case <-h.notify:
	case <-h.ctx.Done():
		//mutant:leavers-waited
		h.waited = time.Since(h.since)
		return h.leave()
	}
	h.waited = time.Since(h.since)
	if h.queues.isDecided(&h.waiter) {
		return h.Err
	}
	if h.place != nil {
		return h.serveInTurn()
	}
	return h.serve()
}

// leave ends the wait of a waiter whose context has ended. If a take decided it
// meanwhile, that answer stands.
func (h *head) leave() error {
	if !h.queues.leave(h.queue, &h.waiter) {
		return h.Err
	}
	//mutant:close-ends-waits
	if h.queues.closed.Load() {
		return backend.ErrClosed
	}
	err := fmt.Errorf("headgate: left the queue, call not counted: %w", h.ctx.Err())
	if h.cause != nil {
		err = backend.Wrap(err, h.cause)
	}
	return err
}

// serve takes and sleeps, as the head of the queue, until the waiter is decided.
func (h *head) serve() error {
	h.burst, h.limit = h.call.burst(), h.call.limit()
	for n := min(h.queue.contest.calls(h.burst.calls), h.limit); !h.over(); {
		d, size, err := h.take(n)
		if err != nil || h.decided {
			return err
		}
		h.queue.contest.denied()
		if n = h.fewer(&d, size); n < size {
			continue
		}
		if size == 1 && h.isEarliest(&d) {
			if err := h.checkDeadline(d.RetryAfter); err != nil {
				return err
			}
		}
		asAnswered := d.Source == backend.FromStore && h.poll == 0
		pause, more := h.plan(&d, size)
		if !h.sleep(pause) {
			break
		}
		h.queue.contest.asAnswered = asAnswered
		n = min(size+more, h.queue.contest.calls(h.burst.calls), h.limit) // the last take left units for no more
	}
	return h.leave()
}

// serveInTurn takes and sleeps, as the head of the queue, until the waiter is decided. It
// takes while it has the turn at the call's gate. If the gate's key denies the call, it
// keeps the turn: the others would be denied too. If another key denies the call, the
// others have their turns meanwhile.
func (h *head) serveInTurn() error {
	for h.awaitTurn() {
		d, _, err := h.take(1)
		if err != nil || h.decided {
			return err
		}
		if h.isEarliest(&d) {
			if err := h.checkDeadline(d.RetryAfter); err != nil {
				return err
			}
		}
		held := h.call.ByGate()
		//mutant:denied-heads-passed-over
		if !held {
			h.call.Gate.leave(h.place)
		}
		if !h.sleep(h.pause(&d)) {
			break
		}
		if held {
			h.place.turn <- struct{}{} // has room, since awaitTurn has taken it
		} else {
			h.call.Gate.enter(h.place)
		}
	}
	return h.leave()
}

// awaitTurn returns false if the context ended first.
func (h *head) awaitTurn() bool {
	begin := time.Now()
	defer func() { h.waited += time.Since(begin) }()
	for {
		select {
		case <-h.place.turn:
			return !h.over()
		case <-h.notify:
		case <-h.ctx.Done():
		}
		if h.over() {
			return false
		}
	}
}

// over reports whether the wait ends without a decision: the context has ended, or the
// store was closed.
func (h *head) over() bool { return h.ctx.Err() != nil || h.queues.closed.Load() }

// take takes for at most n waiters, and decides them if the take passes. size is the
// number of waiters that it was for.
func (h *head) take(n int64) (d backend.Decision, size int64, err error) {
	group := h.queues.group(&h.waiter, n)
	defer h.queues.end(group)
	size = int64(len(group))
	ctx := h.ctx
	if h.queues.bounded { // or the head's context, when it ends, leaves unknown what was charged for the others
		ctx = context.WithoutCancel(ctx)
	}
	a := Answer{States: make([]backend.State, len(h.call.Policies))}
	err = h.call.Take(ctx, size, &d, a.States)
	if h.cause = d.Err; err != nil {
		return d, size, err
	}
	switch {
	case d.Allowed:
		d.Passed = 0 // of the run
		h.queue.contest.won(h.freeCalls(a.States), time.Since(h.since))
	//mutant:unknown-not-asked-again
	case errors.Is(d.Err, backend.ErrPerhapsCounted) && !h.call.Cancels:
		a.Err = d.Err
	default:
		h.free, h.lost = h.freeCalls(a.States), h.lost || errors.Is(d.Err, backend.ErrPerhapsCounted)
		return d, size, nil
	}
	a.Decision = d
	h.queues.decide(h.queue, group, a)
	return d, size, a.Err
}

// freeCalls returns for how many such calls the free units suffice.
func (h *head) freeCalls(states []backend.State) int64 {
	calls := int64(math.MaxInt64)
	for i := range states {
		if cost := h.call.cost(i); cost > 0 && !h.call.Policies[i].Shadow {
			calls = min(calls, states[i].Remaining/cost)
		}
	}
	return calls
}

// fewer returns for how many waiters to take at once after a denial. It returns fewer
// than size if the denial may not be the head's own.
func (h *head) fewer(d *backend.Decision, size int64) int64 {
	switch {
	case size > h.burst.calls: // there were units for all, and another process took them
		return h.burst.calls
	//mutant:losers-take-the-rest
	case h.queue.contest.lost >= maxLost && h.free > 0:
		return h.free
	case !Counted(d): // a local share may be less
		return 1
	//mutant:deadline-of-head
	case !h.inTime(d.RetryAfter):
		return 1
	}
	return size
}

// plan returns how long to sleep after a denial, and for how many more waiters the next
// take is then.
func (h *head) plan(d *backend.Decision, size int64) (pause time.Duration, more int64) {
	c := &h.queue.contest
	if c.rivals > 0 && c.lost < maxLost {
		more = max(0, h.queues.waiting(&h.waiter, h.burst.calls)-size)
	}
	pause = h.pause(d)
	later := pause + h.burst.length*time.Duration(more)/time.Duration(h.burst.calls) +
		c.delay(size+more, h.call.maxDelay(h.burst), h.burst.length, time.Since(h.since))
	//mutant:late-before-deadline
	if h.inTime(later) {
		return later, more
	}
	return pause, 0
}

// isEarliest reports whether RetryAfter is the earliest instant at which the call
// passes. A slot may become free before, lent units may come back unused, and a failure
// mode estimates.
func (h *head) isEarliest(d *backend.Decision) bool {
	//mutant:lent-units-come-back
	return h.known(d) && !h.bySlots(d) && d.Lent == 0
}

// known reports whether a store has counted all that the decision counts, and none of it is
// the call's own. A remembered denial may be prolonged by calls that no store has counted.
func (h *head) known(d *backend.Decision) bool {
	//mutant:lost-take-may-deny
	return Counted(d) && d.Known != backend.NotCounted && !h.lost
}

// Counted reports whether the decision is a store's: of now, remembered, or from units
// that it has lent.
func Counted(d *backend.Decision) bool {
	switch d.Source {
	case backend.FromStore, backend.FromDenyCache, backend.FromLoan:
		return d.Err == nil
	}
	return false
}

// bySlots reports whether the policy that binds counts slots.
func (h *head) bySlots(d *backend.Decision) bool {
	for i := range h.call.Policies {
		if p := &h.call.Policies[i]; p.Name == d.Policy {
			return p.Algorithm.Kind().Leased()
		}
	}
	return false
}

// checkDeadline notes that the call passes in d at the earliest, and refuses it if its
// deadline is before that.
func (h *head) checkDeadline(d time.Duration) error {
	h.queues.deny(&h.waiter, time.Now().Add(d))
	//mutant:deadline-refused
	if !h.inTime(d) {
		return TooLate(d)
	}
	return nil
}

// The first and the longest pause between two takes that look for a slot. The longest is
// also that of a call which no store has denied: the store may answer at any time.
const (
	minPoll = 10 * time.Millisecond
	maxPoll = time.Second
)

// pause returns the time after which the call may pass, as far as the denial shows.
func (h *head) pause(d *backend.Decision) time.Duration {
	slots := h.bySlots(d)
	if h.polls.Store(slots); !slots {
		h.poll = 0
		pause := max(d.RetryAfter, time.Microsecond)
		//mutant:store-may-be-back
		if !h.known(d) {
			pause = min(pause, maxPoll)
		}
		return pause
	}
	h.poll = min(max(minPoll, 2*h.poll), maxPoll)
	return min(d.RetryAfter, h.poll)
}

// inTime reports whether the context ends no sooner than in d.
func (h *head) inTime(d time.Duration) bool {
	deadline, ok := h.ctx.Deadline()
	return !ok || time.Until(deadline) >= d
}

// sleep returns false if the wait is over.
func (h *head) sleep(d time.Duration) bool {
	begin, timer := time.Now(), time.NewTimer(d)
	defer timer.Stop()
	defer func() { h.waited += time.Since(begin) }()
	select {
	case <-timer.C:
	case <-h.notify:
	case <-h.ctx.Done():
	}
	return !h.over()
}
