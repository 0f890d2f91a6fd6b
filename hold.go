package headgate

import "context"

// Hold extends the lease for as long as a call runs, each time a third of its length
// has passed, and at once after Resume. It returns the call's context, and the function that ends both: call it
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
	return r.of().Hold(ctx)
}

// Hold extends the leases of all reservations while a call runs, as Reservation.Hold
// does. The context ends where one of them loses its slot.
func (rs Reservations) Hold(ctx context.Context) (context.Context, context.CancelFunc) {
	releases := make([]context.CancelFunc, len(rs))
	for i, r := range rs {
		ctx, releases[i] = r.Hold(ctx)
	}
	return ctx, func() {
		for _, release := range releases {
			release()
		}
	}
}
