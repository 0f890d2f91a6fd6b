package headgate

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// A call whose costs are all 0 passes, and no store is asked: there is nothing to count, and
// no number to show. It is refused where a call of one unit would be, such as for its key. A
// reservation of such a call is in no store. It is unresolved: a Commit above 0 leaves a
// tombstone of its ID and charges as a Record does.

// costsNothing reports whether a request would charge, and all its costs are 0.
func costsNothing(op backend.Op, g *backend.Group) bool {
	switch {
	case !op.Charges():
		return false
	case g.Costs == nil:
		return g.Cost == 0
	}
	return len(g.Costs) > 0 && allZero(g.Costs)
}

func allZero(units []int64) bool {
	return !slices.ContainsFunc(units, func(n int64) bool { return n != 0 })
}

// pass decides a request that costs nothing.
func (l *Limiter) pass(ctx context.Context, r *backend.Request, d *Decision) error {
	one := *r
	if one.Cost = 1; r.Costs != nil {
		one.Costs = slices.Repeat([]int64{1}, len(r.Costs))
	}
	//mutant:free-call-checked
	if err := l.shard.CheckRequest(ctx, &one); err != nil {
		return err
	}
	for i := range r.Each {
		r.Each[i] = uncounted(&r.Policies[i])
	}
	by := max(0, slices.IndexFunc(r.Policies, func(p Policy) bool { return !p.Shadow }))
	*d = Decision{Allowed: true, Estimated: true, Source: FromNone, State: uncounted(&r.Policies[by])}
	return nil
}

func uncounted(p *Policy) State { return State{Policy: p.Name, Limit: p.Algorithm.Max()} }

// free reports whether a part costs nothing.
func free(p Part) bool { return len(p.Call.Costs) > 0 && allZero(p.Call.Costs) }

// decideRest decides the parts that cost something, after those that cost nothing.
func decideRest(ctx context.Context, op backend.Op, parts []Part, d *Decision) (Reservations, error) {
	rest, at, rs, err := passFree(ctx, op, parts, d)
	if err != nil || len(rest) == 0 {
		return rs, err
	}
	*d = Decision{}
	of, err := decideAll(ctx, op, rest, d)
	if err != nil {
		return nil, err
	}
	//mutant:place-in-the-list
	d.At = at[d.At]
	if !d.Allowed {
		return nil, nil
	}
	for i := range of {
		rs[at[i]] = of[i]
	}
	return rs, nil
}

// passFree decides the parts that cost nothing, and writes the decision of the last of them to
// the zero d. It returns the others and their places, and, of a Reserve, a reservation for each
// part that is decided. Only where no part costs anything has the first one's observer an event.
func passFree(ctx context.Context, op backend.Op, parts []Part, d *Decision) (rest []Part, at []int, rs Reservations, err error) {
	if err := backend.CheckContext(ctx); err != nil {
		return nil, nil, nil, err
	}
	*d = Decision{Allowed: true, Estimated: true, Source: FromNone} // of no parts
	for i := range parts {
		if !free(parts[i]) {
			rest, at = append(rest, parts[i]), append(at, i)
		}
	}
	rs = make(Reservations, len(parts))
	for i := range parts {
		p := &parts[i]
		if !free(*p) {
			continue
		}
		do := p.Limiter.unobserved
		if i == 0 && rest == nil {
			do = p.Limiter.do
		}
		if *d, rs[i], err = p.pass(ctx, op, do); err != nil {
			return nil, nil, nil, err
		}
	}
	return rest, at, rs, nil
}

// pass decides a part that costs nothing. do passes the question on.
func (p *Part) pass(ctx context.Context, op backend.Op, do func(context.Context, *question, *Decision) error) (d Decision, r *Reservation, err error) {
	if op.Opens() {
		r, err = p.Limiter.reserve(ctx, &p.Call, &d, do)
		return d, r, err
	}
	q := p.Limiter.ask(op, p.Call.Key)
	q.request.Costs, q.request.Each = p.Call.Costs, p.Call.Each
	err = do(ctx, q, &d)
	return d, r, err
}
