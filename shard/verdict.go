package shard

import (
	"context"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// again is what a call is told that lost every race: there may be room now.
const again = time.Millisecond

// verdict is a denial of the whole key: every sub-key is known to be spent, or
// nobody answers for it. Written once.
type verdict struct {
	at, until time.Duration
	costs     []int64         // that it answers, and all above: 0 for a policy whose denial it does not need
	states    []backend.State // one a policy, as of at
	dead      map[int]error
}

func (v *verdict) holds(g *backend.Group, now time.Duration) bool {
	return now >= v.at && now < v.until && atLeast(g, v.costs)
}

// conclude returns the denial that follows from what is known, nil where some
// sub-key may have room. It stands until the first of them may. It is exact
// where each share was asked since this call began, and by these costs.
func (c *call) conclude(now time.Duration) (_ *verdict, exact bool) {
	e, own := c.e, costs(&c.r.Group)
	heard := e.heard.Load()
	exact = true
	v := &verdict{at: now, until: now + longest, costs: make([]int64, len(own))}
	t, said := newTotal(e.plan), make([]backend.State, len(own))
	for i := range e.subs {
		h, d := e.subs[i].shut.Load(), e.subs[i].dead.Load()
		switch class := e.class(i, &c.r.Group, now); {
		case class == spent && h != nil:
			exact = exact && h.sent >= c.from && slices.Equal(h.costs, own) // mutant: exact-verdict
			h.tell(said, &c.r.Group, now)
			t.add(said)
			v.rest(h, &c.r.Group)
		case class == absent && d != nil:
			v.mourn(i, d)
		default:
			return nil, false
		}
	}
	v.states = t.states()
	if len(v.dead) == 0 { // who did not answer one call may answer the next
		e.stand(v, heard)
	}
	return v, exact
}

// rest makes the verdict rest on a share's denial of g too.
func (v *verdict) rest(h *shut, g *backend.Group) {
	until, by := h.stands(g)
	v.until = min(v.until, until)
	v.costs[by] = max(v.costs[by], h.denials[by].cost)
}

// mourn makes it rest on the share that did not answer.
func (v *verdict) mourn(i int, d *death) {
	if v.dead == nil {
		v.dead = map[int]error{}
	}
	v.dead[i] = d.err
	v.until = min(v.until, d.at+deadFor)
}

// say denies, or meets the failure mode of the dead. What was not all heard for
// this call is no word of the store's: the deny cache must not make it older.
func (c *call) say(ctx context.Context, v *verdict, exact bool) error {
	switch {
	case len(v.dead) > 0 && c.again:
		return c.meet(ctx, v.dead)
	case len(v.dead) > 0:
		return c.revisit(ctx, v)
	}
	c.deny(v.states, 0)
	if !exact {
		c.d.Source, c.d.Estimated = backend.FromDenyCache, true
	}
	return nil
}

// revisit asks one of the shares that did not answer an earlier call: a full
// queue, a slot on its way, one lost connection are no dead node, and a dead
// node's circuit answers at once. Only then their failure mode applies.
func (c *call) revisit(ctx context.Context, v *verdict) error {
	c.again = true
	i := one(v.dead)
	done, err := c.ask(ctx, i, nil)
	if done {
		return err
	}
	if err == nil { // it answers, and is spent
		delete(v.dead, i)
	}
	if len(v.dead) > 0 {
		return c.meet(ctx, v.dead)
	}
	if whole, exact := c.conclude(c.m.now()); whole != nil {
		return c.say(ctx, whole, exact)
	}
	return c.within(ctx, tally{denied: 1}) // another may have room by now; mutant: share-is-not-key
}

func one(dead map[int]error) int {
	for i := range dead { // Go begins anywhere
		return i
	}
	return 0
}

// repeat denies again what was denied a moment ago, without asking anybody.
func (c *call) repeat(ctx context.Context, v *verdict, now time.Duration) error {
	if c.s.shared.Closed.Load() { // mutant: closed-before-verdict
		c.part(&c.sub, 0)
		return c.s.next.Do(ctx, &c.sub, c.d) // which says so
	}
	if len(v.dead) > 0 {
		return c.revisit(ctx, v)
	}
	c.deny(v.states, now-v.at)
	c.d.Source, c.d.Estimated = backend.FromDenyCache, true
	return nil
}

// deny words a denial from states that are so old.
func (c *call) deny(states []backend.State, past time.Duration) {
	c.d.State = aged(states[backend.Binding(states)], past)
	for j := range c.r.Each {
		c.r.Each[j] = aged(states[j], past)
	}
	if c.r.Op == backend.Take {
		c.r.NewReceipt(backend.NotTaken)
		c.d.Receipt = c.r.Receipt
	}
}

func aged(s backend.State, past time.Duration) backend.State {
	past = past.Truncate(time.Microsecond) // a store's times are whole microseconds
	s.RetryAfter, s.ResetAfter = max(0, s.RetryAfter-past), max(0, s.ResetAfter-past)
	return s
}

// lost denies a call that lost the races for what the sum had shown, or met
// none, where a share may have room again by now.
func (c *call) lost(f *round) {
	states := c.total(f)
	states[backend.Binding(states)].RetryAfter = again
	c.deny(states, 0)
	c.d.Source, c.d.Estimated = backend.FromDenyCache, true // no word of the store's; see say
}
