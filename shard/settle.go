package shard

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// settle passes on a Settle, which names a sub-key. What it gives back shows at once, under
// every list of the key. Where the request has costs they are the estimates: what is above
// them is recorded.
//
// The lease is settled at its sub-key by no more than the estimate, which cannot fail for
// want of room. The excess is charged as a Record, after that: if the Settle fails, nothing
// else is charged, and the same Settle can be repeated. See excess for its error.
func (c *call) settle(ctx context.Context) error {
	r, more := *c.r, make([]int64, len(c.r.Policies))
	if r.Costs != nil && r.Lease.Actual != nil {
		lease := *r.Lease
		lease.Actual = slices.Clone(lease.Actual)
		for j := range more {
			more[j] = max(0, lease.Actual[j]-r.Costs[j])
			lease.Actual[j] -= more[j]
		}
		r.Lease = &lease
	}
	r.Each = nil // the states are the key's, not the sub-key's
	if err := c.s.next.Do(ctx, &r, c.d); err != nil {
		return err
	}
	c.s.settled(&r, more)
	if err := c.excess(ctx, more); err != nil {
		return err
	}
	//mutant:settled-states-of-key
	if c.r.Each != nil {
		c.look(ctx)
	}
	return nil
}

// excess records what was used above the estimate. The lease is settled, so the excess goes
// on without its caller and has its own time: each trip has the store's budget.
//
// If none of it was charged, the same Settle can be repeated, and charges it. If a part is
// charged or may be, the error is ErrPerhapsCounted.
func (c *call) excess(ctx context.Context, more []int64) error {
	if slices.Max(more) == 0 {
		return nil
	}
	if _, err := c.record(context.WithoutCancel(ctx), more); err != nil {
		return backend.Wrap(layer.ErrExcess, err)
	}
	return nil
}

// settled notes a settlement of one of the key's shares, under every list of policies. The
// settler's may spread nothing. more has the units to be charged beside it; nil is none.
func (s *Store) settled(r *backend.Request, more []int64) {
	//mutant:settled-in-every-list
	for _, k := range s.keys().of(r.Key) {
		k.settled(r.Sub, r.Policies, more)
	}
}

// settled notes a settlement of a share by this list of policies. The share is asked again.
// How much room it has is not known before it answers, so it counts as unused.
func (k *hotKey) settled(sub string, list []backend.Policy, more []int64) {
	i := k.named(sub)
	if i < 0 {
		return
	}
	s := k.sub(i)
	s.settled.Add(1) // first: see observe
	//mutant:settled-share-asked
	s.denied.Store(nil)
	for j := range list {
		at := slices.IndexFunc(k.policies, func(p backend.Policy) bool { return p.Name == list[j].Name })
		if at >= 0 && (more == nil || more[j] == 0) { // else nothing was given back
			k.refill(i, at)
		}
	}
}

// look fills the states that a Settle wants, as a Peek of the key does. They are not
// Counted where that fails: the lease is settled.
func (c *call) look(ctx context.Context) {
	q, d := backend.Request{Op: backend.Peek, Group: *c.r.Group.Look(), StoreTime: c.r.StoreTime}, backend.Decision{}
	q.Sub = ""
	if err := c.s.Do(context.WithoutCancel(ctx), &q, &d); err != nil {
		clear(c.r.Each)
		return
	}
	c.d.State, c.d.Estimated = d.State, d.Estimated
}
