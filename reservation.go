package headgate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/free"
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
type Reservation struct {
	limiter    *Limiter // nil: nothing to settle
	key        string
	id         backend.LeaseID
	length     time.Duration
	late       bool    // its record is kept for longer
	costs      []int64 // the estimates
	at         []int   // of each policy of costs, its index in the list of the limiter that resumed it; nil: the same
	listed     int     // how many policies that list has
	named      bool    // its ID is one of the caller's
	unresolved bool    // it is not known whether the store has the lease, or none has
	nothing    bool    // it cost nothing, and no store has it
	settled    *settlement.Settlements
	with       []*Reservation // of an unresolved ReserveFirst: those of all its parts, itself too, which one request settles; nil: none
	part       int            // of one of these: which part it is of
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

// newReservation makes the request a Reserve under a new lease, and returns its
// reservation.
func (l *Limiter) newReservation(q *backend.Request, c *Call) *Reservation {
	r := &Reservation{settled: new(settlement.Settlements), limiter: l, key: q.Key, costs: slices.Clone(q.Costs), length: c.lease(), late: c.LateCommit}
	//mutant:all-lease-begun
	r.settled.Begin(time.Now())
	if r.costs == nil {
		r.costs = slices.Repeat([]int64{1}, len(l.policies))
	}
	r.nothing = free.Costs(r.costs)
	if _, _ = rand.Read(r.id[:]); c.ID != "" { // which never fails
		r.name(c.ID)
	}
	q.Op, q.Costs, q.Lease = backend.Reserve, r.costs, r.lease()
	if r.named {
		q.Lease.Attempt = settlement.NewAttempt(true)
	}
	return r
}

// lease returns a new request's lease.
func (r *Reservation) lease() *backend.Lease {
	return &backend.Lease{ID: r.id, Length: r.length, Late: r.late, Named: r.named, Unresolved: r.unresolved}
}

// held reports whether there is something to settle.
func (r *Reservation) held() bool { return r != nil && r.limiter != nil }

// refused returns err with an event of it, where no layer was asked.
func (r *Reservation) refused(op backend.Op, err error) error {
	if !r.held() {
		return err
	}
	return r.limiter.refused(op, r.key, err)
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
// the lease, and counts once.
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
	clear(each)
	if !r.held() {
		return nil
	}
	err := r.commit(ctx, each, actual)
	if err != nil && errors.As(err, new(*InvalidError)) {
		r.settled.Refuse()
	}
	return err
}

func (r *Reservation) commit(ctx context.Context, each []State, actual []int64) error {
	units, err := r.lists(each, actual)
	switch {
	case err != nil:
		return r.refused(backend.Settle, err)
	case each == nil || r.at == nil:
		return r.settle(ctx, r.among(units), each)
	}
	ordered := make([]State, len(r.at))
	err = r.settle(ctx, r.among(units), ordered)
	//mutant:resumed-states-in-order
	for i, j := range r.at {
		each[j] = ordered[i]
	}
	return err
}

// lists returns what a Commit settles by. An error is why its lists do not fit the lease.
// Lists in the order of the lease are the request's, which Check compares with its policies.
func (r *Reservation) lists(each []State, actual []int64) (units []int64, err error) {
	switch units = r.units(actual); {
	case units == nil:
		err = &InvalidError{What: "actual costs", Value: len(actual), Want: "none, or one for each policy"}
	case each != nil && r.at != nil && len(each) != r.listed:
		err = &InvalidError{What: "len(each)", Value: len(each), Want: "a state per policy, or nil"}
	}
	return units, err
}

// units returns what a Commit settles by, in the order of the lease; nil if actual has
// another length than the limiter's list.
func (r *Reservation) units(actual []int64) []int64 {
	switch {
	case len(actual) == 0:
		return r.costs
	case r.at == nil && len(actual) == len(r.costs):
		return actual
	case r.at == nil || len(actual) != r.listed:
		return nil
	}
	ordered := make([]int64, len(r.at))
	for i, j := range r.at {
		ordered[i] = actual[j]
	}
	return ordered
}

// Cancel gives all back: it is a Commit of nothing used.
func (r *Reservation) Cancel(ctx context.Context) error {
	if !r.held() {
		return nil
	}
	return r.settle(ctx, make([]int64, len(r.estimates())), nil)
}

// Close settles the reservation, and is made for defer. If there was neither a Commit nor a
// Cancel, Close cancels. If the last of them failed, Close repeats it with the same units,
// also if it failed because its context had ended. If a Commit's lists were refused, Close
// keeps the estimate. What was used is not known then, and an error in a price must not
// make calls free. If no store decides, Close returns that error, and goes on in the
// background for the length of the lease, at least a minute. A limiter has 4,096 such
// Closes at a time. A reservation that is not held any more is no error. Do not close a
// reservation whose Token another process has: Close would give back what that process
// uses, and its settlement would be ErrNotHeld.
func (r *Reservation) Close() error {
	if !r.held() {
		return nil
	}
	actual := r.settled.Final(r.estimates())
	if r.settled.Settled() {
		return nil
	}
	settle := func(ctx context.Context) error { return r.settle(ctx, actual, nil) }
	err := settle(context.Background())
	switch {
	case errors.Is(err, ErrNotHeld):
		return nil
	//mutant:close-goes-on
	case backend.Undecided(err):
		r.limiter.cancelling.Cancel(r.length, settle)
	}
	return err
}

// settle sends a settlement, and once more if no answer came. The states are those after
// it; nil: not wanted.
func (r *Reservation) settle(ctx context.Context, actual []int64, each []State) error {
	if r.with != nil && r != r.with[0] {
		return r.with[0].settle(ctx, actual, nil)
	}
	lease := r.lease()
	if !r.settled.Attempt(lease, actual) {
		return r.refused(backend.Settle, ErrNotHeld)
	}
	send := func() error { return r.settled.Sent(ctx, lease, r.send(ctx, backend.Settle, lease, each)) }
	err := send()
	//mutant:lost-settle-repeated
	if errors.Is(err, ErrPerhapsCounted) && ctx.Err() == nil {
		err = send()
	}
	r.settled.Ended(lease, err)
	//mutant:states-of-no-error
	if err != nil { // a layer may have filled them before it failed
		clear(each)
	}
	return err
}

// slots reports whether the reservation has a slot of an InFlight policy, and whether
// one of these policies fails closed.
func (r *Reservation) slots() (some, closed bool) {
	for i, p := range backend.Enforced(r.limiter.policies) {
		//mutant:slots-of-wrong-costs
		if i < len(r.costs) && p.Algorithm.Kind().Leased() && r.costs[i] > 0 {
			some, closed = true, closed || p.OnFailure == FailClosed
		}
	}
	return some, closed
}

// send asks for an operation on the lease.
func (r *Reservation) send(ctx context.Context, op backend.Op, lease *backend.Lease, each []State) error {
	//mutant:nothing-is-not-settled
	if r.nothing && (lease.Actual == nil || free.Costs(lease.Actual)) {
		return nil
	}
	var d Decision
	q := r.limiter.ask(op, r.key)
	q.request.Lease, q.request.Each = lease, each
	if op.Ends() {
		q.request.Costs = r.costs
	}
	if op.Ends() && r.with != nil {
		r.all(&q.request)
	}
	return r.limiter.do(ctx, q, &d)
}

// Extend moves the end of the lease to its length from now, for a call that runs
// longer. A lease that has ended is ErrLeaseEnded: its slots may be another's. One
// that was settled, or whose key was reset, is ErrNotHeld. A reservation that no
// store has decided has no lease there, and Extend returns nil.
func (r *Reservation) Extend(ctx context.Context) error {
	//mutant:settled-not-extended
	if !r.held() || r.settled.Settled() {
		return r.refused(backend.Extend, ErrNotHeld)
	}
	return r.extend(ctx)
}

func (r *Reservation) extend(ctx context.Context) error {
	sent := time.Now()
	err := r.send(ctx, backend.Extend, r.lease(), nil)
	if r.unresolved && (errors.Is(err, ErrNotHeld) || backend.Undecided(err)) {
		err = nil
	}
	if err == nil {
		r.settled.Begin(sent)
	}
	return err
}
