package joint

import (
	"cmp"
	"context"
	"errors"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// first decides alternatives one after the other, until one passes. One whose outcome is unknown
// ends the request by its failure mode. One that is certainly not counted is passed over, unless
// it stops. If no store decides any, the first one's mode does.
func (s *Store) first(ctx, bounded context.Context, r *backend.Request, d *backend.Decision) error {
	var failed error
	some, back := false, nothing
	for from, to := range r.Alternatives() {
		//mutant:next-alternative-meets-none
		within(bounded, back) // or a count that stands in this one too would be charged still
		q, one := layer.Slice(r, from, to), backend.Decision{}
		own, _ := layer.Own(&q.Group, s)
		var err error
		back, err = own.attempt(ctx, bounded, &q, &one)
		//mutant:unknown-alternative-ends
		if errors.Is(err, backend.ErrPerhapsCounted) || q.Stops && backend.Undecided(err) {
			err = own.end(ctx, &q, &one, err)
		}
		for i := from; i < to && q.Lease != nil && !one.Allowed; i++ {
			//mutant:passed-over-holds-nothing
			r.GroupAt(i).Lease.Unresolved = false
		}
		//mutant:not-counted-passed-over
		if backend.Undecided(err) {
			failed = cmp.Or(failed, err)
			continue
		}
		one.Key, one.At = r.GroupAt(from+one.At).Key, from+one.At
		if !some || one.Allowed || one.RetryAfter < d.RetryAfter {
			*d = one
		}
		if some = true; err != nil || one.Allowed || one.Err != nil {
			*d = one
			return err
		}
	}
	if some {
		return nil
	}
	_, to := r.Alternative(0)
	q := layer.Slice(r, 0, to)
	own, _ := layer.Own(&q.Group, s)
	return own.end(ctx, &q, d, failed)
}

// attempt decides one alternative, without failure modes but if several keys of it are reserved
// one by one, and the outcome is unknown. What it gives back is sent once back is closed.
func (s *Store) attempt(ctx, bounded context.Context, r *backend.Request, d *backend.Decision) (back <-chan struct{}, err error) {
	to := s.next
	if len(r.And) > 0 {
		if !s.together(r) {
			return s.oneByOne(ctx, bounded, r, d, false)
		}
		to = s.fallback
	}
	err = s.pass(bounded, to, r, d)
	return nothing, cmp.Or(layer.BudgetEnded(bounded, err), err)
}
