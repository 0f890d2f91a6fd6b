package headgate

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/settlement"
)

// Reserve decides a call as Do does. Where it passes, the costs are an estimate, and
// the reservation is settled by what was used. A typical use:
//
//	r, d, err := l.Reserve(ctx, headgate.Call{Key: tenant, Costs: []int64{1, 2000}})
//	if err != nil || !d.Allowed {
//		...
//	}
//	defer r.Close() // gives all back, where nothing was committed
//	...
//	err = r.Commit(ctx, 1, tokens)
//
// The reservation is never nil. That of a denied call, or of one that returned an
// error, does nothing. That of a call whose costs are all 0 is in no store. Only a Commit
// above 0 is sent, and charges as a Record does.
//
// Where the store did not decide, the policies' failure modes do. A reservation that
// passed by FailOpen or FailLocal is recorded in the store by its Commit. Where the
// call was denied and may have been charged all the same, it is cancelled in the
// background. That is repeated until the store has answered, for the length of the lease
// and at least a minute.
func (l *Limiter) Reserve(ctx context.Context, c Call) (*Reservation, Decision, error) {
	var d Decision
	rs, err := decideAll(ctx, backend.Reserve, []Part{{Limiter: l, Call: c}}, &d)
	return only(rs), d, err
}

// Reserved returns the reservation of a Reserve under an ID of the caller's, by the same Call, in
// whatever process that was. It asks no store. If an ID is set:
//
//   - A Reserve while the lease is open is the same reservation: it charges nothing, and moves the
//     end. With another list or other costs it is an *InvalidError.
//   - Commit, Cancel and Extend go by the key and the ID. Where there is no lease they are
//     ErrNotHeld, and charge nothing.
//   - After a settlement, or the end of the lease, a Reserve opens another one. A Reserve that was
//     sent before the settlement, by the clocks of both processes, and comes later is ErrNotHeld.
//   - After a Reset of the key a Reserve is ErrNotHeld until the lease has ended.
//   - A Reserve whose outcome is not known is not cancelled. Repeat it, or settle it.
//   - While no store decides, it is not known what is open there. The failure modes decide, or a
//     denial of the key that is known to stand.
//
// Such an ID is no secret: whoever may call the store may settle.
func (l *Limiter) Reserved(c Call) *Reservation {
	if l.zero() || c.ID == "" {
		return &Reservation{}
	}
	r := l.newReservation(l.group(&c), &c)
	//mutant:reserved-begin-unknown
	r.lease.Resume(r.lease.Limiter, &r.lease.Group, r.lease.Asked)
	return r
}

// held returns the reservation of a Reserve whose ID is held, with the states of now. These are
// those of a second request, in what is left of the budget of a call that began at an instant.
func (l *Limiter) held(ctx context.Context, c Call, begin time.Time, d *Decision) []*Reservation {
	//mutant:held-within-budget
	if shared := layer.Of(l.store); shared != nil && shared.Budget > 0 {
		bounded, cancel := layer.Within(ctx, shared.Budget, shared.Budget-time.Since(begin))
		defer cancel()
		ctx = bounded
	}
	var err error
	*d, err = l.Peek(ctx, Call{Key: c.Key, Costs: make([]int64, len(l.policies)), Each: c.Each})
	//mutant:held-whatever-is-shown
	if err != nil || d.Source != FromStore { // the store has decided, and its numbers are not known
		*d = Decision{Source: FromStore, State: State{Known: backend.NotCounted}}
	}
	d.Allowed, d.RetryAfter = true, 0
	return []*Reservation{l.Reserved(c)}
}

// only returns the reservation of a call of one part.
func only(rs []*Reservation) *Reservation {
	if len(rs) == 0 {
		return &Reservation{}
	}
	return rs[0]
}

// ReserveAll decides as All does, and reserves on every key. The lease of all of them
// is the longest that a part asks for. Where the call passes there is one reservation
// for each part, in the order listed; else there is none.
func ReserveAll(ctx context.Context, parts ...Part) (Reservations, Decision, error) {
	var d Decision
	rs, err := decideAll(ctx, backend.Reserve, parts, &d)
	return rs, d, err
}

// Reservations are those of a call on several keys. Each can be settled by itself
// too, and has a Token of its own.
type Reservations []*Reservation

// Commit settles by what was used: a list for each key, in the order reserved, as a
// Reservation's Commit takes them. No lists leave all estimates as they are. The keys
// are settled in parallel; the error is that of the first listed one which has any.
// The same Commit can be repeated: what is settled by it already returns nil.
//
// All lists are checked before one is sent. If one is refused, by an *InvalidError, no key
// is settled, and Close keeps the estimates of all.
func (rs Reservations) Commit(ctx context.Context, actual ...[]int64) error {
	return rs.CommitEach(ctx, nil, actual...)
}

// CommitEach is Commit, and fills the states of each key as Reservation.CommitEach does.
// each has a list for each key, in the order reserved, or none. Those of a key that the same
// Commit has settled before are zero.
func (rs Reservations) CommitEach(ctx context.Context, each [][]State, actual ...[]int64) error {
	return rs.leases().Commit(ctx, each, actual)
}

// Cancel gives all back.
func (rs Reservations) Cancel(ctx context.Context) error { return rs.leases().Cancel(ctx) }

// Extend moves the end of every lease to its length from now.
func (rs Reservations) Extend(ctx context.Context) error { return rs.leases().Extend(ctx) }

// Close cancels what was not settled. It is made for defer.
func (rs Reservations) Close() error { return rs.leases().Close() }

// leases returns the leases that they settle.
func (rs Reservations) leases() settlement.Leases {
	ls := make(settlement.Leases, len(rs))
	for i, r := range rs {
		ls[i] = r.of()
	}
	return ls
}
