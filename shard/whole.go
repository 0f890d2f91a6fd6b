package shard

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// peek reads all sub-keys and sums. Where none that answers has room, and some
// don't answer, their failure mode decides.
func (c *call) peek(ctx context.Context) error {
	f := c.all(ctx, backend.Peek)
	if err := f.wrong(); err != nil {
		return err
	}
	c.keep(ctx, f)
	t := f.total()
	if t.heard < len(f.answers) && (t.heard == 0 || t.retry > 0) {
		return c.meet(ctx, f.dead())
	}
	c.deny(t.states(), 0)
	c.d.Allowed = c.d.RetryAfter == 0
	c.d.Estimated = t.heard < len(f.answers)
	return nil
}

func (f *round) dead() map[int]error {
	dead := map[int]error{}
	for i := range f.answers {
		if err := f.answers[i].Err; err != nil {
			dead[i] = err
		}
	}
	return dead
}

func first(dead map[int]error) error {
	for i := 0; ; i++ {
		if err := dead[i]; err != nil {
			return err
		}
	}
}

// reset resets every sub-key, and returns the first error: then some are reset
// and some may not be. It is not atomic: a call that comes meanwhile may be
// forgotten by its share or not.
func (c *call) reset(ctx context.Context, p *plan) error {
	c.e = newEntry(c.r.Key, p)
	c.m.forget(c.r.Key)       // mutant: reset-shows-at-once
	defer c.m.forget(c.r.Key) // who came in between may know what was before; mutant: reset-shows-at-once
	f := c.all(ctx, backend.Reset)
	if dead := f.dead(); len(dead) > 0 {
		return backend.Wrap(fmt.Errorf("headgate: %d of %d sub-keys were reset", len(f.answers)-len(dead), len(f.answers)), first(dead))
	}
	c.deny(f.total().states(), 0)
	c.d.Allowed = true
	return nil
}
