package breaker

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// local decides in this process, by its share of the limits of the policies that
// fail local; policies that fail open let everything pass. A share below one unit,
// or below the call's cost, fails closed: no local instant exists at which the call
// would pass. A Reserve under an ID that is open here is the same reservation; by other costs it
// is an error.
func (s *Store) local(ctx context.Context, r *backend.Request, d *backend.Decision, err error) error {
	q, at := s.shares(r)
	i, here := exceeded(&q), error(nil)
	if i < 0 {
		here = s.opts.Local.Do(context.WithoutCancel(ctx), &q, d) // ctx may have ended: that may be why the store did not decide
	}
	switch {
	case i >= 0:
		refuse(r, d, at[i])
	case here == nil:
		//mutant:local-run-passed
		if d.Allowed && q.Run == 0 {
			d.Passed = r.Run
		}
		for i := range q.Each {
			r.Each[at[i]] = q.Each[i]
		}
	//mutant:held-here-passes
	case errors.Is(here, backend.ErrHeld):
		d.Allowed, d.State = true, state(&r.Policies[at[0]])
	//mutant:reserved-here-otherwise
	case errors.As(here, new(*backend.InvalidError)):
		return here
	default:
		refuse(r, d, at[0])
	}
	d.Source, d.Err = backend.FromFailLocal, err
	return nil
}

// localShares decides by the count of each sub-key in this process, one after the other until
// the call has passed, or all units of a run UpTo. Otherwise the denial that ends first is the
// answer.
func (s *Store) localShares(ctx context.Context, r *backend.Request, d *backend.Decision, err error, shares iter.Seq[*backend.Request]) {
	left, each := r.Run, slices.Clone(r.Each)
	for share := range shares {
		var one backend.Decision
		share.Run, share.Each = left, slices.Clone(each)
		_ = s.local(ctx, share, &one, err) // no spread key has an ID
		left -= one.Passed
		//mutant:soonest-dead-share
		if d.Err == nil || one.Known > d.Known || one.Known == d.Known && one.RetryAfter+one.NextAfter < d.RetryAfter+d.NextAfter {
			*d = one
			copy(r.Each, share.Each)
		}
		//mutant:all-dead-shares-tried
		if one.Allowed && left == 0 {
			break
		}
	}
	if d.Passed = r.Run - left; d.Passed > 0 && !d.Allowed {
		d.Allowed, d.NextAfter, d.RetryAfter = true, d.RetryAfter, 0
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		if mode(p) != backend.FailLocal {
			continue
		}
		if d.Policy == p.Name {
			s.widen(p, &d.State, d.Passed)
		}
		if r.Each != nil {
			s.widen(p, &r.Each[i], d.Passed)
		}
	}
}

// widen makes the state of a sub-key in this process an estimate of the key's.
func (s *Store) widen(p *backend.Policy, state *backend.State, passed int64) {
	//mutant:dead-share-is-estimated
	if state.Known == backend.Exact {
		share := p.Algorithm.Share(1, int64(s.opts.Instances))
		state.Limit, state.Known = share.Max(), backend.Estimated
		state.Used, state.Passed = state.Limit-state.Remaining, int32(min(passed, math.MaxInt32))
	}
}

// exceeded returns the first policy whose share is below the cost, or -1.
func exceeded(q *backend.Request) int {
	for i := range q.Policies {
		if most := q.Policies[i].Algorithm.Max(); most == 0 || most < q.CostOf(i) {
			return i
		}
	}
	return -1
}

// refuse denies for the i-th policy. The caller sets the source and the cause.
func refuse(r *backend.Request, d *backend.Decision, i int) {
	d.State = state(&r.Policies[i])
	d.RetryAfter = RetryAfter
	if r.Each != nil {
		r.Each[i] = d.State
	}
}

// shares returns the request for the policies that fail local, each with this
// process's share of its limit, and their indexes in r. It copies what it
// changes: r belongs to the caller. Policies that fail open have no share, as
// they let everything pass.
func (s *Store) shares(r *backend.Request) (q backend.Request, at []int) {
	q = *r
	q.Policies, q.Costs, q.Each = nil, nil, nil
	for i := range r.Policies {
		p := r.Policies[i]
		if mode(&p) != backend.FailLocal {
			continue
		}
		p.Algorithm = p.Algorithm.Share(1, int64(s.opts.Instances)) // rounded down: the shares of all processes stay within the limit
		q.Policies = append(q.Policies, p)
		q.Costs = append(q.Costs, r.CostOf(i))
		at = append(at, i)
	}
	if q.Op == backend.Borrow {
		q.Op, q.Loan = backend.Take, nil // nothing is lent here
	}
	switch { // these policies may cost nothing
	case q.Op.Opens(): // a Commit may charge something
		lease := *q.Lease
		//mutant:local-lease-of-nothing
		lease.Free, q.Lease = true, &lease
	case q.Costs != nil && q.Op.Charges() && slices.Max(q.Costs) == 0:
		q.Op, q.Run, q.UpTo = backend.Peek, 0, false
	}
	if r.Each != nil {
		q.Each = make([]backend.State, len(at))
	}
	return q, at
}

// localLease settles or extends in this process too what may have been reserved here
// under FailLocal: the lease of an unresolved reservation. One that is not held here
// was not. A request that the store refused with err changes no count here either.
func (s *Store) localLease(ctx context.Context, r *backend.Request, err error) error {
	if s.opts.Local == nil || s.opts.Instances < 1 || !r.Op.Held() {
		return nil
	}
	//mutant:refused-settles-nothing-local
	if errors.As(err, new(*backend.InvalidError)) {
		return nil
	}
	q, at := s.shares(r)
	if len(at) == 0 {
		return nil
	}
	lease := *r.Lease
	lease.Unresolved, lease.Actual = false, nil
	if r.Lease.Actual != nil {
		for _, i := range at {
			lease.Actual = append(lease.Actual, r.Lease.Actual[i])
		}
	}
	q.Lease = &lease
	var d backend.Decision
	return s.opts.Local.Do(context.WithoutCancel(ctx), &q, &d)
}
