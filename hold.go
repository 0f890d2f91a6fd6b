package headgate

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Hold extends the lease for as long as a call runs, each time a third of its length
// has passed. It returns the call's context, and the function that ends both: call it
// when the work is done, by defer or before the settlement. With a reservation of a slot:
//
//	ctx, release := r.Hold(ctx)
//	defer release()
//	err = work(ctx)
//
// Where the lease is lost and the call has a slot of an InFlight policy, the context
// ends, and context.Cause is why: ErrLeaseEnded or ErrNotHeld. The slot may be
// another's. While the store can't be asked, the policies' failure modes decide. Under
// FailClosed the context ends when the lease does, else the call goes on until the store
// answers. A lease without slots that is lost is no longer extended, and the context
// stays.
//
// Hold of a reservation that holds nothing extends nothing. That of a nil context
// returns one that has ended, with the error as its cause.
func (r *Reservation) Hold(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		err := r.refused(backend.Extend, backend.CheckContext(ctx))
		ctx, end := context.WithCancelCause(context.Background())
		end(err)
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	if !r.held() {
		return ctx, func() { end(nil) }
	}
	h := &holder{r: r, ctx: ctx, end: end, last: r.begun}
	h.slots, h.strict = r.slots()
	pause := time.Until(h.last.Add(r.length / extensions))
	if h.last.IsZero() { // of a token: known from the first extension on
		h.last = time.Now()
	}
	first := time.AfterFunc(pause, h.extend)
	return ctx, func() { first.Stop(); end(nil) }
}

// extensions is how many times a lease is extended in its length: two may be lost.
const extensions = 3

// slots reports whether the reservation has a slot of an InFlight policy, and whether
// one of these policies fails closed.
func (r *Reservation) slots() (some, closed bool) {
	for i, p := range r.limiter.policies {
		if p.Algorithm.Kind().Leased() && r.costs[i] > 0 && !p.Shadow { // mutant: shadow-slots-end-nothing
			some, closed = true, closed || p.OnFailure == FailClosed
		}
	}
	return some, closed
}

// holder extends one reservation. One goroutine at a time uses it.
type holder struct {
	r             *Reservation
	ctx           context.Context
	end           context.CancelCauseFunc
	last          time.Time // the lease was begun or extended no earlier
	slots, strict bool
}

// extend extends until the context ends or the lease is lost.
func (h *holder) extend() {
	for h.ctx.Err() == nil {
		pause, lost := h.once()
		if lost != nil {
			if h.slots { // mutant: lost-lease-ends-call
				h.end(lost)
			}
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-h.ctx.Done():
			timer.Stop()
		}
	}
}

// once extends once. It returns when to extend again, or why the lease is lost.
func (h *holder) once() (pause time.Duration, lost error) {
	sent, ctx := time.Now(), h.ctx
	if h.strict { // or a server that hangs would keep the call for the store's budget
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, h.last.Add(h.r.length))
		defer cancel()
	}
	err := ErrNotHeld
	if !h.r.settled.Settled() { // or the observer would receive an error that no caller gets; mutant: settled-hold-silent
		err = h.r.extend(ctx)
	}
	left := h.r.length - time.Since(h.last)
	switch {
	case err == nil:
		h.last = sent
		return h.r.length / extensions, nil
	case errors.Is(err, ErrNotHeld) && h.r.settled.Sending(): // perhaps by this context; mutant: own-settlement-ends-no-call
		return h.r.length / (10 * extensions), nil
	case errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLeaseEnded):
		return 0, err
	case h.slots && h.strict && left <= 0: // mutant: unreached-lease-ends
		return 0, ErrLeaseEnded
	case h.slots && h.strict:
		return min(left, h.r.length/(10*extensions)), nil
	}
	return h.r.length / (10 * extensions), nil
}
