package settlement

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Hold extends the lease while its call runs. It returns the call's context, which ends if slots
// are lost, and the function that ends both. If it is not known when the lease began, the first
// extension comes at once.
func (l *Lease) Hold(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		err := l.refused(backend.Extend, backend.CheckContext(ctx))
		ctx, end := context.WithCancelCause(context.Background())
		end(err)
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	if !l.Stored() {
		return ctx, func() { end(nil) }
	}
	h := &hold{lease: l, ctx: ctx, end: end, start: time.Now()}
	for i, p := range backend.Enforced(l.Group.Policies) {
		//mutant:slots-of-wrong-costs
		if i < len(l.Group.Costs) && p.Algorithm.Kind().Leased() && l.Group.Costs[i] > 0 {
			h.slots, h.strict = true, h.strict || p.OnFailure == backend.FailClosed
		}
	}
	first := time.AfterFunc(time.Until(l.set.begun().Add(l.Asked.Length/extensions)), h.extend)
	return ctx, func() { first.Stop(); end(nil) }
}

// hold extends a lease. One goroutine at a time uses it.
type hold struct {
	lease  *Lease
	slots  bool // the lease holds slots: if it is lost, the call's context ends
	strict bool // a policy of slots fails closed: the call's context ends with the lease
	ctx    context.Context
	end    context.CancelCauseFunc
	start  time.Time
}

// extensions is how many times a lease is extended in its length: two may be lost.
const extensions = 3

// extend extends until the context ends or the lease is lost.
func (h *hold) extend() {
	for h.ctx.Err() == nil {
		pause, lost := h.once()
		if lost != nil {
			//mutant:lost-lease-ends-call
			if h.slots {
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
func (h *hold) once() (pause time.Duration, lost error) {
	last, length, ctx := h.lease.set.begun(), h.lease.Asked.Length, h.ctx
	if last.IsZero() { // of a token: known from the first extension on
		last = h.start
	}
	if h.strict { // or a server that hangs would keep the call for the store's budget
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, last.Add(length))
		defer cancel()
	}
	err := backend.ErrNotHeld
	//mutant:settled-hold-silent
	if !h.lease.set.settled() { // or the observer would receive an error that no caller gets
		err = h.lease.extend(ctx)
	}
	left := length - time.Since(last)
	switch {
	case err == nil:
		return length / extensions, nil
	//mutant:own-settlement-ends-no-call
	case errors.Is(err, backend.ErrNotHeld) && h.lease.set.sending(): // perhaps by this context
		return length / (10 * extensions), nil
	case errors.Is(err, backend.ErrNotHeld) || errors.Is(err, backend.ErrLeaseEnded):
		return 0, err
	//mutant:unreached-lease-ends
	case h.slots && h.strict && left <= 0:
		return 0, backend.ErrLeaseEnded
	case h.slots && h.strict:
		return min(left, length/(10*extensions)), nil
	}
	return length / (10 * extensions), nil
}
