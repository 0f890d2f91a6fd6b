package headgate

import (
	"context"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/wait"
)

// Wait waits until the call passes. It decides as Do does, and returns a decision that
// is Allowed, or an error and nothing was taken.
//
// Waiters of one process on one key pass in the order of their arrival. It does not
// matter what limiter on the store they came by, where its policies count alike. A call
// that costs little waits behind one that costs much. Queues of several processes have no
// order among each other. They share what there is about evenly where their calls cost
// the same.
//
// The first waiter asks the store and sleeps until there is room, for itself and for
// those behind it that ask for the same. So the first waiter may pass up to 150 ms later
// than there is room for its own call. What is given back meanwhile, by a Reset or a
// settlement, shows when it wakes.
//
// The first waiter gets a *DeadlineError at once if its RetryAfter passes the deadline of
// its ctx. So does a call of the same costs that joins the queue with a deadline before
// the first waiter can pass. When the other waiters pass is not known. They wait until they
// are first, or until their ctx ends: then the error is that of ctx, without a RetryAfter.
// No wait for a slot of an InFlight policy is refused in this way, since the call may pass
// sooner. Neither is one while units are lent, or while a failure mode decides. A cost that
// can never pass is ErrNeverAdmissible at once.
//
// A waiter whose ctx ends leaves, and takes nothing. The store's Close ends all waits with
// ErrClosed. If the store could not decide, the error of the first waiter then matches
// ErrUnavailable as well as the error of ctx. Look for ErrUnavailable first to distinguish an
// outage from a long queue.
//
// Where the store did not decide, the policies' failure modes do. FailOpen passes.
// FailClosed and FailLocal wait on, and ask again when the decision says so: until the
// store answers or ctx ends. Where the call was perhaps counted Wait returns
// ErrPerhapsCounted, since to ask again might charge it twice.
//
// A limiter with an InFlight policy can't Wait, even at a cost of 0: use WaitReserve, or
// make a limiter without that policy by With.
func (l *Limiter) Wait(ctx context.Context, c Call) (Decision, error) {
	w := waiting{limiter: l, call: c}
	return w.wait(ctx, backend.Take)
}

// WaitReserve is Reserve for a call that waits as Wait does, in the same queue. Only the first
// waiter gets a *DeadlineError. Slots of InFlight policies come free without notice. The first
// waiter asks for one at least each second. It also does when a reservation of the process with
// the same list of policies gives one back.
func (l *Limiter) WaitReserve(ctx context.Context, c Call) (*Reservation, Decision, error) {
	w := waiting{limiter: l, call: c}
	d, err := w.wait(ctx, backend.Reserve)
	if err != nil {
		return &Reservation{}, d, err
	}
	return w.reservation, d, nil
}

// waiting is a call that waits, and what its takes have brought.
type waiting struct {
	question    // for the event: of a Take or a Reserve
	limiter     *Limiter
	call        Call
	reservation *Reservation
}

// wait queues the call, and makes the event of it.
func (w *waiting) wait(ctx context.Context, op backend.Op) (Decision, error) {
	l, begin := w.limiter, time.Now()
	w.request.Op, w.request.Key = op, w.call.Key
	o, err := w.queue(ctx)
	err = deadlineOf(err)
	if err == nil && w.call.Each != nil {
		copy(w.call.Each, o.States)
	}
	if l != nil && l.observer != nil {
		w.decision, w.request.Each, w.waited, w.behind = o.Decision, o.States, o.Waited, o.Behind
		l.observe(&w.question, time.Since(begin), err)
	}
	return o.Decision, err
}

// deadlineOf returns the error of a wait as callers match it.
func deadlineOf(err error) error {
	if late, ok := err.(wait.TooLate); ok {
		return &DeadlineError{time.Duration(late)}
	}
	return err
}

// queue refuses a call that can never pass, and queues any other.
func (w *waiting) queue(ctx context.Context) (o wait.Outcome, err error) {
	l, c := w.limiter, &w.call
	if l.zero() {
		return o, errZero
	}
	r := &w.request
	r.Policies, r.Cost, r.Costs, r.Each = l.policies, 1, c.Costs, c.Each
	if r.Op.Opens() {
		r.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: c.lease()}
	}
	//mutant:free-call-queues-not
	if costsNothing(r.Op, &r.Group) {
		err = w.take(ctx, 1, &o.Decision, c.Each)
		return o, err
	}
	if err := l.shard.CheckRequest(ctx, r); err != nil {
		return o, err
	}
	call := wait.Call{
		Key: c.Key, Policies: l.policies, Costs: c.Costs, Take: w.take, Single: r.Op.Opens(), Cancels: r.Op.Opens(),
	}
	return l.queues.Wait(ctx, call)
}

// take decides n calls as one.
func (w *waiting) take(ctx context.Context, n int64, d *Decision, states []State) (err error) {
	l, c := w.limiter, &w.call
	if w.request.Op.Opens() {
		w.reservation, err = l.reserve(ctx, &Call{c.Key, c.Costs, states, c.Lease, c.LateCommit}, d, w.do)
		return err
	}
	q := l.ask(backend.Take, c.Key)
	q.request.Run, q.request.Cost, q.request.Costs, q.request.Each, q.request.Again = n, n, slices.Clone(c.Costs), states, true
	for i := range q.request.Costs {
		q.request.Costs[i] *= n
	}
	return w.do(ctx, q, d)
}

// do is the limiter's without an event: a wait has one.
func (w *waiting) do(ctx context.Context, q *question, d *Decision) error {
	if w.limiter.observer != nil {
		q.request.StoreTime = &w.storeTime
	}
	return w.limiter.unobserved(ctx, q, d)
}
