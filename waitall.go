package headgate

import (
	"context"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/wait"
)

// WaitAll waits until a call that counts for several keys passes, as Wait does for one.
// It decides as All does. With one part it is Wait. List the key of the caller first,
// and the key that all callers share last:
//
//	d, err := headgate.WaitAll(ctx, perTenant.Call("tenant:7"), shared.Call("gpu"))
//
// A call queues by its first key. The heads of these queues take turns at the last key:
// one call each, or as many as the Weight of the first part. So a tenant with one call
// waits for one turn of each other tenant, however many calls they have. A call that its
// own key denies, or any key but the last, loses its turn until that key lets it pass. So
// it delays no other. A call that the last key denies keeps its turn.
//
// If the shared key is listed first, there are no turns: all tenants wait in one queue.
//
// Turns and weights are those of one process, and of calls whose last key and policies
// are the same. Queues of several processes have no order among each other. A take
// decides one call, so a queue passes calls no faster than its store answers one after
// the other.
//
// Failure modes and errors are as in Wait. With several parts, a call gets a *DeadlineError
// only once it is the first of its queue and has the turn. Of parts on several stores, the
// Close of the first one's store ends the wait.
func WaitAll(ctx context.Context, parts ...Part) (Decision, error) {
	if err := checkParts(backend.Take, parts); err != nil {
		return Decision{}, err
	}
	if len(parts) == 0 || slices.ContainsFunc(parts, free) {
		var d Decision
		rest, at, _, err := passFree(ctx, backend.Take, parts, &d)
		if err != nil || len(rest) == 0 {
			return d, err
		}
		if d, err = WaitAll(ctx, rest...); err == nil {
			d.At = at[d.At]
		}
		return d, err
	}
	if len(parts) == 1 {
		return parts[0].Limiter.Wait(ctx, parts[0].Call)
	}
	w := waitingAll{ctx: ctx, parts: parts}
	return w.wait()
}

// waitingAll is a call for several keys that waits, and its last take.
type waitingAll struct {
	ctx   context.Context
	parts []Part
	last  *question
}

// maxWeight is the greatest weight of a part.
const maxWeight = 1_000_000

// wait queues the call, and makes the event of it.
func (w *waitingAll) wait() (Decision, error) {
	begin := time.Now()
	w.last = &question{parts: w.parts}
	o, err := w.queue()
	if err != nil {
		w.last.decision = Decision{}
	}
	w.last.waited = o.Waited
	w.last.observed(time.Since(begin), err)
	return o.Decision, err
}

// queue refuses a call that can never pass, and queues any other.
func (w *waitingAll) queue() (wait.Outcome, error) {
	if _, err := w.last.ask(w.ctx, backend.Take); err != nil {
		return wait.Outcome{}, err
	}
	first, last := &w.parts[0], &w.parts[len(w.parts)-1]
	if first.Weight < 0 || first.Weight > maxWeight {
		return wait.Outcome{}, &InvalidError{What: "weight", Value: first.Weight, Want: "0 to 1000000"}
	}
	gate := last.Limiter.queues.Gate(last.Call.Key, last.Limiter.policies)
	defer gate.Close()
	o, err := first.Limiter.queues.Wait(w.ctx, wait.Call{
		Key: first.Call.Key, Policies: first.Limiter.policies, Costs: first.Call.Costs, Take: w.take, Single: true,
		Gate: gate, Weight: float64(max(first.Weight, 1)), ByGate: func() bool { return w.last.decision.At == len(w.parts)-1 },
	})
	return o, deadlineOf(err)
}

// take decides the call. n is 1.
func (w *waitingAll) take(ctx context.Context, _ int64, d *Decision, _ []State) (err error) {
	for i := range w.parts {
		if !w.parts[i].Limiter.queues.Bounded() {
			ctx = w.ctx
		}
	}
	w.last = &question{parts: w.parts}
	if _, err = w.last.ask(ctx, backend.Take); err == nil {
		w.last.request.Again = true
		err = w.last.decide(ctx)
	}
	*d = w.last.decision
	return err
}
