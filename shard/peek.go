package shard

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
)

// peek reads all sub-keys and sums. Where none that answers has room, and some
// don't answer, their failure mode decides.
func (c *call) peek(ctx context.Context) error {
	f := c.k.read(ctx, c.s.next, c.r, c.k.all(), c.cache.Now)
	if err := f.refused(); err != nil {
		return err
	}
	if f.observe(&c.r.Group, ctx.Err() != nil) { // mutant: room-ends-denial
		c.denials.Forget()
	}
	t := f.total()
	if t.shares < len(f.shares) && (t.shares == 0 || t.retry > 0) {
		dead, err := f.dead()
		c.err = err
		return c.failAny(ctx, dead)
	}
	denial.Tell(&c.r.Group, c.d, t.states(), 0)
	c.d.Allowed = c.d.RetryAfter == 0
	c.d.Estimated = t.shares < len(f.shares)
	return nil
}

// reset resets every sub-key, and returns the first error: then some are reset
// and some may not be. It is not atomic: a concurrent call may be forgotten by its
// share or not.
func (c *call) reset(ctx context.Context) error {
	c.k = newHotKey(c.r.Key, c.r.Policies)
	c.forget()       // mutant: reset-shows-at-once
	defer c.forget() // a concurrent call may remember what was before; mutant: reset-shows-at-once
	f := c.k.read(ctx, c.s.next, c.r, c.k.all(), c.cache.Now)
	if dead, err := f.dead(); err != nil {
		n := len(f.answers)
		return backend.Wrap(fmt.Errorf("headgate: %d of %d sub-keys were reset", n-len(dead), n), err)
	}
	denial.Tell(&c.r.Group, c.d, f.total().states(), 0)
	c.d.Allowed = true
	return nil
}

// forget drops first what is remembered of the key and then its denials. A call that
// still concludes from the former has an older generation of the latter.
func (c *call) forget() {
	c.s.memory().forget(c.r.Key)
	c.denials.Forget()
}
