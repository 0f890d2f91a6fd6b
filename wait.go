package headgate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/free"
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
func (l *Limiter) Wait(ctx context.Context, key string) (Decision, error) {
	return l.WaitCall(ctx, Call{Key: key})
}

// Pace decides as Allow does, and returns a call that passes once its Delay is over: it paces
// callers to the rate of an algo.LeakyQueue. Without one it is Allow. A denied call, which would
// wait longer than the queue's delay, returns at once.
//
// If ctx ends during the Delay, Pace returns its error. The call stays charged, since those behind
// it have been told their delays.
func (l *Limiter) Pace(ctx context.Context, key string) (Decision, error) {
	d, err := l.Allow(ctx, key)
	if d.Delay > 0 {
		select {
		case <-time.After(d.Delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return d, err
}

// WaitCall is Wait for a call with a cost of its own for each policy, as Do is Allow.
func (l *Limiter) WaitCall(ctx context.Context, c Call) (Decision, error) {
	return newWaiting(Part{Limiter: l, Call: c}).wait(ctx, backend.Take)
}

// WaitReserve is Reserve for a call that waits as Wait does, in the same queue. Only the first
// waiter gets a *DeadlineError. Slots of InFlight policies come free without notice. The first
// waiter asks for one at least each second. It also does when a reservation of the process with
// the same list of policies gives one back. A call whose reply was lost is cancelled. It asks again
// at least each second, and gets no *DeadlineError, since its own charge may deny it meanwhile.
func (l *Limiter) WaitReserve(ctx context.Context, c Call) (*Reservation, Decision, error) {
	if c.ID != "" {
		err := &InvalidError{What: "ID", Value: c.ID, Want: "none: a Reserve under an ID of the caller's is not waited for"}
		return &Reservation{}, Decision{}, l.refused(backend.Reserve, c.Key, err)
	}
	w := newWaiting(Part{Limiter: l, Call: c})
	d, err := w.wait(ctx, backend.Reserve)
	if err != nil {
		w.reservations = nil
	}
	return only(w.reservations), d, err
}

// waiting is a call of one or several parts that waits. The question and the reservations are
// those of its last take.
type waiting struct {
	question
	parts        []Part
	reservations []*Reservation
}

func newWaiting(parts ...Part) *waiting {
	return &waiting{question: question{limiters: limiters(parts)}, parts: parts}
}

// wait queues the call, and makes the event of it.
func (w *waiting) wait(ctx context.Context, op backend.Op) (Decision, error) {
	begin := time.Now()
	o, err := w.queue(ctx, op)
	if late, ok := err.(wait.TooLate); ok {
		err = &DeadlineError{time.Duration(late)}
	}
	w.decision, w.waited, w.behind = o.Decision, o.Waited, o.Behind
	if len(w.parts) == 1 && o.States != nil {
		w.request.Each = o.States
		copy(w.parts[0].Call.Each, o.States)
	}
	w.observed(time.Since(begin), err)
	//mutant:waited-at-is-a-part
	o.Decision.At = w.partOf(o.Decision.At)
	return o.Decision, err
}

// maxWeight is the greatest weight of a part.
const maxWeight = 1_000_000

// queue refuses a call that can never pass, and queues any other.
func (w *waiting) queue(ctx context.Context, op backend.Op) (o wait.Outcome, err error) {
	if _, err = w.ask(ctx, op, w.parts); err != nil {
		return o, err
	}
	take := func(within context.Context, n int64, d *Decision, states []State) error {
		for _, l := range w.limiters {
			if len(w.limiters) > 1 && !l.queues.Bounded() {
				within = ctx
			}
		}
		return w.take(within, op, n, d, states)
	}
	first, last := w.ends()
	//mutant:free-call-queues-not
	if first == nil {
		err = take(ctx, 1, &o.Decision, nil)
		return o, err
	}
	c := wait.Call{Key: first.Call.Key, Policies: first.Limiter.policies, Shards: first.Limiter.shards, Costs: first.Call.Costs, Take: take, Single: op.Opens(), Cancels: op.Opens()}
	if len(w.parts) > 1 {
		if n := first.Weight; n < 0 || n > maxWeight {
			return o, &InvalidError{What: "weight", Value: n, Want: "0 to 1000000"}
		}
		gate := last.Limiter.queues.Gate(last.Call.Key, last.Limiter.policies)
		defer gate.Close()
		c.Single, c.Gate, c.Weight = true, gate, float64(max(first.Weight, 1))
		c.ByGate = func() bool { return &w.parts[w.decision.At] == last }
	}
	return first.Limiter.queues.Wait(ctx, c)
}

// ends returns the first and the last part that cost something; nil: none does.
func (w *waiting) ends() (first, last *Part) {
	for i := range w.parts {
		//mutant:free-part-queues-not
		if p := &w.parts[i]; !free.Costs(p.Call.Costs) {
			first, last = cmp.Or(first, p), p
		}
	}
	return first, last
}

// take decides the call, or n calls of one part as one.
func (w *waiting) take(ctx context.Context, op backend.Op, n int64, d *Decision, states []State) (err error) {
	if w.reservations, err = w.ask(ctx, op, w.parts); err != nil {
		return err
	}
	r := &w.request
	r.Again = !op.Opens()
	if len(w.parts) == 1 && states != nil {
		r.Each = states
		if !op.Opens() {
			r.Run, r.Cost, r.Costs = n, n, slices.Clone(r.Costs)
			for i := range r.Costs {
				r.Costs[i] *= n
			}
		}
	}
	w.decision = Decision{}
	err = w.decide(ctx, w.reservations)
	*d = w.decision
	return err
}
