package headgate

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// WaitAll waits until a call that counts for several keys passes, as Wait does for one.
// It decides as All does. With one part it is Wait. List the key of the caller first,
// and the key that all callers share last:
//
//	d, err := headgate.WaitAll(ctx, perTenant.Part("tenant:7"), shared.Part("gpu"))
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
	parts, of := flat(parts)
	if err := checkParts(backend.Take, parts); err != nil {
		return Decision{}, err
	}
	if len(parts) == 0 {
		return All(ctx)
	}
	w := newWaiting(parts...)
	w.of = of
	return w.wait(ctx, backend.Take)
}
