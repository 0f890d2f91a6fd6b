package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// settle passes on a Settle, which names a sub-key. What it gives back shows at once: the
// share is asked again. How much room that has is not known before it answers, so it
// counts as unused. Where the request has costs they are the estimates; see spill.
func (c *call) settle(ctx context.Context) error {
	r, k, more := *c.r, c.k, make([]int64, len(c.r.Policies))
	if r.Costs != nil && r.Lease.Actual != nil {
		lease := *r.Lease
		lease.Actual = slices.Clone(lease.Actual)
		for j := range more {
			if k.policies[j].Shadow { // of which the lease says whether it is charged
				continue
			}
			more[j] = max(0, lease.Actual[j]-r.Costs[j])
			lease.Actual[j] -= more[j]
		}
		r.Lease = &lease
	}
	if err := c.s.next.Do(ctx, &r, c.d); err != nil {
		return err
	}
	for i := range k.subs {
		if k.name(i) == r.Sub {
			k.sub(i).denied.Store(nil) // mutant: settled-share-asked
			for j := range more {
				if more[j] == 0 { // else nothing was given back
					k.refill(i, j)
				}
			}
		}
	}
	c.spill(context.WithoutCancel(ctx), more)
	return nil
}

// spill charges units above the estimates: to each share what it is seen with room for,
// and the rest to any. What is lost on the way may be counted, and is not sent again.
func (c *call) spill(ctx context.Context, more []int64) {
	for n := 0; slices.Max(more) > 0 && n < len(c.k.subs)+asks; n++ {
		some, costs := make([]int64, len(more)), slices.Clone(more)
		for j := range some {
			some[j] = min(more[j], 1) // mutant: excess-by-policy
		}
		i := c.k.draw(&backend.Group{Costs: some}, c.k.denials.Now())
		if i < 0 { // mutant: excess-to-shares-with-room
			i = max(0, c.k.another(dead, &c.r.Group, c.k.denials.Now()))
		} else {
			for j := range costs {
				costs[j] = max(some[j], min(costs[j], c.k.sub(i).rooms[j].units.Load()))
			}
		}
		g := backend.Group{Key: c.r.Key, Policies: c.r.Policies, Costs: costs}
		c.r, c.d = &backend.Request{Op: backend.Record, Group: g}, new(backend.Decision)
		if _, err := c.ask(ctx, i); errors.Is(err, backend.ErrUnavailable) {
			continue // nothing was counted
		}
		for j := range more {
			more[j] -= costs[j]
		}
	}
}
