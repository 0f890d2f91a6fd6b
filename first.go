package headgate

import (
	"context"

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

func decideFirst(ctx context.Context, op backend.Op, parts []Part, d *Decision) (Reservations, error) {
	q := &question{first: true}
	rs, err := q.decideParts(ctx, op, parts, d)
	Reservations(rs).leases().Keep(&q.request, q.decision.At)
	return rs, err
}
