package headgate

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// First decides a call by the first part, in the order given, whose policies all have room. The call
// is charged to that part, and to no other. So it is taken from an allowance, and from bought
// credits once that is spent:
//
//	d, err := headgate.First(ctx, allowance.Part("user:42"), credits.Part("user:42"))
//
// A part is one key, or several with Part.And, all or nothing. A count may be in several parts,
// such as the requests per minute of a user beside each of two models: it is charged once. The
// decision names the key and the policy that bind, and At is the index of the part: 0 is the first
// one. A denial is that of the part that passes soonest, with its exact RetryAfter.
//
// Limiters on one store, in memory or on one server, decide at once. If the outcome is unknown,
// the failure modes of the first part decide. Else one part is decided after the other, as keys
// of a cluster are. A part of which it is not known whether it was counted ends the call by its
// failure modes. One that is certainly not counted is passed over, such as that of a dead node;
// with Part.Stop it ends the call too. If no store decides any part, the modes of the first one do.
//
// A part that the store has denied within the last second is left out, unless units of it were
// lent then; see Options.DenyCacheTTL. Units that a process holds in advance answer for the first
// part only. What other processes hold counts as used.
//
// Bad parts are an error, as in All. No parts pass, and so does a part that costs nothing, if
// those before it are denied. First returns within the greatest of the stores' budgets.
func First(ctx context.Context, parts ...Part) (d Decision, err error) {
	_, err = decideFirst(ctx, backend.Take, parts, &d)
	return d, err
}

// ReserveFirst decides as First does, and reserves on the keys of the part that is charged. Where
// the call passes there is a reservation for each key of all parts, in the order listed. Those of
// other parts hold nothing, and settling them does nothing. A Commit takes a list for each key:
//
//	err = rs.Commit(ctx, []int64{tokens}, []int64{tokens})
//
// An excess above the estimate is charged to that part too, above its limit if need be. If no store
// answered, it is not known which part was charged, and all are kept. One request settles them:
// the part that was charged is settled, and if none was, the first one is charged what was used.
// A Commit of one of the reservations leaves the estimates of the other parts.
func ReserveFirst(ctx context.Context, parts ...Part) (Reservations, Decision, error) {
	var d Decision
	rs, err := decideFirst(ctx, backend.Reserve, parts, &d)
	return rs, d, err
}

func decideFirst(ctx context.Context, op backend.Op, parts []Part, d *Decision) ([]*Reservation, error) {
	q := &question{first: true}
	rs, err := q.decideParts(ctx, op, parts, d)
	if len(rs) > 0 {
		q.keep(rs)
	}
	return rs, err
}

// keep keeps the reservations of the part that was charged, and those of others that may be.
// The others become empty. Of a part that costs nothing no store has any.
func (q *question) keep(rs []*Reservation) {
	from, to := q.request.Alternative(q.decision.At)
	var with []*Reservation
	others := false
	for i, r := range rs {
		r.part = q.partOf(i)
		switch own := i >= from && i < to; {
		//mutant:other-parts-hold-nothing
		case !own && !r.unresolved:
			*r = Reservation{}
		case !r.nothing:
			with, others = append(with, r), others || !own
		}
	}
	for i := range with {
		//mutant:unresolved-parts-kept
		if others {
			with[i].with, with[i].settled = with, with[0].settled
		}
	}
}

// estimates returns those of all reservations that one request settles.
func (r *Reservation) estimates() (all []int64) {
	if r.with == nil {
		return r.costs
	}
	for _, m := range r.with {
		all = append(all, m.costs...)
	}
	return all
}

// among returns what was used of all reservations that one request settles: of r these units, and
// the estimates of the others.
func (r *Reservation) among(units []int64) (all []int64) {
	if r.with == nil {
		return units
	}
	for _, m := range r.with {
		if m == r {
			all = append(all, units...)
		} else {
			all = append(all, m.costs...)
		}
	}
	return all
}

// all makes the settlement of the first of several reservations one of all of them. Its lease has
// what was used of all.
func (r *Reservation) all(q *backend.Request) {
	used := q.Lease.Actual
	for i, m := range r.with {
		lease := m.lease()
		lease.Attempt, lease.Actual = q.Lease.Attempt, used[:len(m.costs)]
		used = used[len(m.costs):]
		g := backend.Group{Key: m.key, Policies: m.limiter.policies, Costs: m.costs, Lease: lease, Via: m.limiter.free, Else: i > 0 && m.part != r.with[i-1].part}
		if i == 0 {
			g.Each = q.Each
			q.Group = g
		} else {
			q.And = append(q.And, g)
		}
	}
}

// commitFirst settles by these lists the reservations that one request settles. The i-th is one of
// them.
func (rs Reservations) commitFirst(ctx context.Context, i int, each [][]State, actual [][]int64) error {
	var all []int64
	with := rs[i].with
	for _, m := range with {
		all = append(all, m.units(listAt(actual, slices.Index(rs, m)))...)
	}
	for _, states := range each {
		clear(states)
	}
	var err error
	if !with[0].settled.WonBy(all) {
		err = with[0].settle(ctx, all, listAt(each, slices.Index(rs, with[0])))
	}
	for i, r := range rs { // that cost nothing
		if r.held() && r.with == nil {
			err = cmp.Or(err, r.CommitEach(ctx, listAt(each, i), listAt(actual, i)...))
		}
	}
	return err
}

// once returns the reservation, and an empty one if another one's settlement is its own.
func (r *Reservation) once() *Reservation {
	if r.held() && r.with != nil && r != r.with[0] {
		return nil
	}
	return r
}
