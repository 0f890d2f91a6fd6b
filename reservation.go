package headgate

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/settlement"
)

// DefaultLease is the length of a lease where Call.Lease is 0.
const DefaultLease = time.Minute

// Reservation is an admitted call whose cost is not known yet, or that holds a slot
// of an InFlight policy. Its lease is kept in the store, beside the counts that it
// charged.
//
// Exactly one settlement corrects the counts: the first Commit, Cancel or Close, by
// whatever process. If it is never settled, the slots are free when the lease ends, and
// the estimate stays charged until it has aged. For one more length of the lease after its
// end, a settlement still corrects the counts.
//
// The zero Reservation and that of a denied call have nothing to settle: their
// methods do nothing. A Reservation is safe for concurrent use.
type Reservation struct{ lease settlement.Lease }

// of returns the lease that r settles; nil: r is nil.
func (r *Reservation) of() *settlement.Lease {
	if r == nil {
		return nil
	}
	return &r.lease
}

// lease returns the length of the call's lease.
func (c *Call) lease() time.Duration {
	length := cmp.Or(c.Lease, DefaultLease)
	//mutant:lease-rounded-up
	if rest := length % time.Millisecond; rest > 0 && length < backend.MaxLease {
		length += time.Millisecond - rest
	}
	return length
}

// leasing is a limiter as leases use it.
type leasing struct{ *Limiter }

func (l leasing) Send(ctx context.Context, r *backend.Request) error {
	var d Decision
	q := l.ask(r.Op, r.Key)
	q.request = *r
	return l.do(ctx, q, &d)
}

func (l leasing) Refused(op backend.Op, key string, err error) error { return l.refused(op, key, err) }

func (l leasing) CheckRequest(ctx context.Context, r *backend.Request) error {
	return l.free.CheckRequest(ctx, r)
}

func (l leasing) Background() settlement.Background { return l.cancelling }

// newReservation makes the group one that reserves, and returns its reservation.
func (l *Limiter) newReservation(g *backend.Group, c *Call) *Reservation {
	r := new(Reservation)
	r.lease.Reserve(leasing{l}, g, backend.Lease{Length: c.lease(), Late: c.LateCommit}, c.ID)
	return r
}

// Commit settles by what was used: units, one for each policy in the limiter's order.
// None at all leave the estimate as it is. Less than the estimate gives the rest
// back, as far as it still counts. More is charged now, above the limit if need be:
// later calls are denied until it has aged. Slots of InFlight policies are free,
// whatever is given for them.
//
// A reservation that was settled before, whose key was reset, or whose record has left is
// ErrNotHeld, and nothing changes. Call.LateCommit keeps the record for longer. Any other error
// leaves open whether the settlement arrived; the same Commit can be repeated for one length of
// the lease, and counts once. A settlement whose reply is lost is sent once more, so that it takes
// at most two of the store's budgets.
//
// A nil error does not prove that the slot was held until now: a lease that has ended can
// still be settled. Hold and Extend report a lost slot.
//
// A list that does not fit the policies, or has a negative number, is an *InvalidError:
// nothing is sent or counted. The reservation stays open for another Commit or a Cancel,
// and its Close keeps the estimate.
func (r *Reservation) Commit(ctx context.Context, actual ...int64) error {
	return r.CommitEach(ctx, nil, actual...)
}

// CommitEach is Commit, and fills each with the state of every policy right after the settlement,
// in the limiter's order. A Peek is not needed. RetryAfter is 0 where one unit would pass. On an
// error, and of a reservation that has nothing to settle, the states are zero. So is the state of a
// policy that a resumed token does not name. So is that of a Calendar if this process's clock is
// wrong by a period. each is the caller's to reuse; nil is a Commit.
func (r *Reservation) CommitEach(ctx context.Context, each []State, actual ...int64) error {
	return r.of().Commit(ctx, each, actual)
}

// Cancel gives all back: it is a Commit of nothing used.
func (r *Reservation) Cancel(ctx context.Context) error { return r.of().Cancel(ctx) }

// Close settles the reservation, and is made for defer. If there was neither a Commit nor a
// Cancel, Close cancels. If the last of them failed, Close repeats it with the same units,
// also if it failed because its context had ended. If a Commit's lists were refused, Close
// keeps the estimate. What was used is not known then, and an error in a price must not
// make calls free. If no store decides, Close returns that error, and goes on in the
// background for the length of the lease, at least a minute. A limiter has 4,096 such
// Closes at a time. Under a Call.ID it does not go on: whoever reserved the ID again meanwhile
// would lose the lease. A reservation that is not held any more is no error. Do not close a
// reservation whose Token another process has: Close would give back what that process
// uses, and its settlement would be ErrNotHeld.
func (r *Reservation) Close() error { return r.of().Close() }

// Extend moves the end of the lease to its length from now, for a call that runs
// longer. A lease that has ended is ErrLeaseEnded: its slots may be another's. One
// that was settled, or whose key was reset, is ErrNotHeld. A reservation that no
// store has decided has no lease there, and Extend returns nil.
func (r *Reservation) Extend(ctx context.Context) error { return r.of().Extend(ctx) }
