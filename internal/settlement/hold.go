package settlement

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Hold extends the lease of a reservation while its call runs. One goroutine at a time
// uses it.
type Hold struct {
	Settlements *Settlements // of the reservation
	Length      time.Duration
	Extend      func(context.Context) error
	Slots       bool // the lease holds slots: if it is lost, the call's context ends
	Strict      bool // a policy of slots fails closed: the call's context ends with the lease

	ctx   context.Context
	end   context.CancelCauseFunc
	start time.Time
}

// extensions is how many times a lease is extended in its length: two may be lost.
const extensions = 3

// Start extends the lease until ctx ends, or end is called since the lease was lost. If it
// is not known when the lease began, the first extension comes at once. The function that
// Start returns ends both.
func (h Hold) Start(ctx context.Context, end context.CancelCauseFunc) context.CancelFunc {
	h.ctx, h.end, h.start = ctx, end, time.Now()
	first := time.AfterFunc(time.Until(h.Settlements.Begun().Add(h.Length/extensions)), h.extend)
	return func() { first.Stop(); end(nil) }
}

// extend extends until the context ends or the lease is lost.
func (h *Hold) extend() {
	for h.ctx.Err() == nil {
		pause, lost := h.once()
		if lost != nil {
			//mutant:lost-lease-ends-call
			if h.Slots {
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
func (h *Hold) once() (pause time.Duration, lost error) {
	last, ctx := h.Settlements.Begun(), h.ctx
	if last.IsZero() { // of a token: known from the first extension on
		last = h.start
	}
	if h.Strict { // or a server that hangs would keep the call for the store's budget
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, last.Add(h.Length))
		defer cancel()
	}
	err := backend.ErrNotHeld
	//mutant:settled-hold-silent
	if !h.Settlements.Settled() { // or the observer would receive an error that no caller gets
		err = h.Extend(ctx)
	}
	left := h.Length - time.Since(last)
	switch {
	case err == nil:
		return h.Length / extensions, nil
	//mutant:own-settlement-ends-no-call
	case errors.Is(err, backend.ErrNotHeld) && h.Settlements.Sending(): // perhaps by this context
		return h.Length / (10 * extensions), nil
	case errors.Is(err, backend.ErrNotHeld) || errors.Is(err, backend.ErrLeaseEnded):
		return 0, err
	//mutant:unreached-lease-ends
	case h.Slots && h.Strict && left <= 0:
		return 0, backend.ErrLeaseEnded
	case h.Slots && h.Strict:
		return min(left, h.Length/(10*extensions)), nil
	}
	return h.Length / (10 * extensions), nil
}
