package shard

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// peek reads all sub-keys and sums. Where none that answers has room, and some
// don't answer, their failure mode decides.
func (c *call) peek(ctx context.Context) (backend.Decision, error) {
	f := c.all(ctx, backend.Peek)
	if err := f.wrong(); err != nil {
		return backend.Decision{}, err
	}
	c.keep(f)
	t := f.total()
	if t.heard < len(f.answers) && (t.heard == 0 || t.retry > 0) {
		return c.meet(ctx, f.dead())
	}
	states := t.states()
	d := c.deny(states, 0)
	d.Allowed, d.Charge = d.RetryAfter == 0, nil
	d.Estimated = t.heard < len(f.answers)
	return d, nil
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

// reset resets every sub-key, and returns the first error: then some are reset
// and some may not be. It is not atomic: a call that comes meanwhile may be
// forgotten by its share or not.
func (c *call) reset(ctx context.Context, p *plan) (backend.Decision, error) {
	c.e = newEntry(c.r.Key, p)
	c.m.forget(c.r.Key)
	defer c.m.forget(c.r.Key) // who came in between may know what was before
	f := c.all(ctx, backend.Reset)
	for i := range f.answers {
		if err := f.answers[i].Err; err != nil {
			return backend.Decision{}, err
		}
	}
	d := c.deny(f.total().states(), 0)
	d.Allowed, d.Charge = true, nil
	return d, nil
}
