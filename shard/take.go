package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
)

// call is one request on a key that is spread. Its decision is zero until one is
// made: what a share says that the call does not end with is taken back.
type call struct {
	s   *Store
	m   *known
	r   *backend.Request
	d   *backend.Decision
	e   *entry
	sub backend.Request // on the share that is asked
	// from is when a take began, as m counts: what was sent from then on speaks of
	// a moment of the call's own. What it joins may have been sent before.
	from  time.Duration
	begin time.Time
	asked int  // the share that was asked last
	again bool // a share that had not answered was asked again
}

// calls are those that nobody makes.
var calls = sync.Pool{New: func() any { return new(call) }}

// How often a call asks. First come those that nothing is known against; then,
// when the sum was read, those that it showed room in. A call that nobody
// answers goes on to the next: a few times, since a dead node has many.
const (
	firsts = 2
	tries  = 2
	deaths = 4
)

func (c *call) take(ctx context.Context) error {
	if v := c.e.verdict.Load(); v != nil {
		now := c.m.now()
		if v.holds(&c.r.Group, now) {
			return c.repeat(ctx, v, now)
		}
		if now >= v.until || now < v.at {
			c.e.verdict.CompareAndSwap(v, nil)
		}
	}
	var n tally
	if i := c.pick(false); i >= 0 {
		if done, err := c.try(ctx, i, nil, &n); done {
			return err
		}
	}
	return c.within(ctx, n)
}

// tally is what became of the shares that were tried.
type tally struct{ denied, dead int }

// try is ask, counted.
func (c *call) try(ctx context.Context, i int, f *round, n *tally) (done bool, err error) {
	done, err = c.ask(ctx, i, f)
	switch {
	case done:
	case err == nil:
		n.denied++
	default:
		n.dead++
	}
	return done, err
}

// within goes on for as long as the store's budget allows: each round has a
// budget of its own, and the call has one for all of them.
func (c *call) within(ctx context.Context, n tally) error {
	if c.s.shared.Budget == 0 {
		return c.more(ctx, n)
	}
	bounded, cancel := context.WithDeadline(ctx, c.begin.Add(c.s.shared.Budget))
	defer cancel()
	err := c.more(bounded, n)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !layer.Undecided(err) { // mutant: perhaps-counted-stays
		return c.fail(ctx, c.asked, fmt.Errorf("%w: the budget was spent on other sub-keys", backend.ErrUnavailable))
	}
	return err
}

// more asks a second share, and then all.
func (c *call) more(ctx context.Context, n tally) error {
	for n.denied < firsts && n.dead < deaths {
		i := c.pick(n.denied > 0)
		if i < 0 {
			break
		}
		if done, err := c.try(ctx, i, nil, &n); done {
			return err
		}
	}
	if v, exact := c.conclude(c.m.now()); v != nil {
		if n.denied == 0 {
			return c.repeat(ctx, v, v.at)
		}
		return c.say(ctx, v, exact)
	}
	return c.search(ctx)
}

// pick returns a sub-key to ask, -1 where none is known to have room. Only the
// first may be asked without having been seen with room.
func (c *call) pick(seen bool) int {
	if i := c.e.draw(&c.r.Group); i >= 0 {
		return i
	}
	s := c.e.look(&c.r.Group, c.m.now())
	if !s.some && (seen || s.stale) || s.best < 0 {
		return -1
	}
	c.e.claim(s.best, &c.r.Group)
	return s.best
}

// search reads the sum and takes from where it shows room. Whoever loses the
// race for that twice is denied, though there may be more elsewhere.
func (c *call) search(ctx context.Context) error {
	f, err := c.sum(ctx)
	if err != nil {
		return err
	}
	i, rooms := c.e.best(f.rooms(), &c.r.Group)
	for n := (tally{}); i >= 0 && n.denied < tries && n.dead < deaths; {
		if n.denied > 0 {
			c.s.done.seconds.Add(1)
		}
		c.e.claim(i, &c.r.Group)
		if done, err := c.try(ctx, i, f, &n); done {
			return err
		}
		i, rooms = c.e.best(rooms, &c.r.Group)
	}
	if v, exact := c.conclude(c.m.now()); v != nil {
		return c.say(ctx, v, exact)
	}
	if i >= 0 {
		c.s.done.wrong.Add(1)
	}
	c.lost(f)
	return nil
}

// ask takes from the i-th share, after the sum f where one was read. It is
// done where that passed, or where the call must not go on: a take that was
// perhaps counted is not tried elsewhere.
func (c *call) ask(ctx context.Context, i int, f *round) (done bool, err error) {
	c.asked = i
	c.part(&c.sub, i)
	if n := len(c.sub.Policies); n > 1 && c.sub.Each == nil {
		c.sub.Each = make([]backend.State, n)
	}
	err = c.s.next.Do(ctx, &c.sub, c.d)
	switch {
	case err == nil:
		return c.hear(i, f), nil
	case lonely(err) && ctx.Err() == nil: // a caller who left says nothing of the share; mutant: lost-answer-ends-call
		c.e.bury(i, err, c.m.now())
		return false, err
	}
	return true, c.fail(ctx, i, err)
}

// hear makes of what the i-th share answered the call's decision, if it passed,
// and nothing else.
func (c *call) hear(i int, f *round) (passed bool) {
	d, one := c.d, [1]backend.State{c.d.State}
	states := c.sub.Each
	if states == nil {
		states = one[:]
	}
	if d.Allowed && f == nil {
		c.e.renew(i, states)
	}
	c.e.learn(i, d, states, &c.r.Group, c.from, c.m.now)
	if !d.Allowed {
		*d = backend.Decision{} // mutant: denial-taken-back
		return false
	}
	c.widen(d, states, f)
	return true
}

// part writes the request on the i-th share to r.
func (c *call) part(r *backend.Request, i int) {
	*r = *c.r
	r.Sub, r.Policies, r.Last = c.e.name(i), c.e.plan.part(i), false
}

// widen makes of a share's answer to a take that passed the whole key's: what
// remains is the sum of what was last seen in each. After a sum, what is used is
// what that said, which may be more than the limit leaves where a share holds
// more than its part, and the key is as new when the last of them is.
func (c *call) widen(d *backend.Decision, states []backend.State, f *round) {
	for j := range states {
		s := &states[j]
		s.Limit = c.e.plan.policies[j].Algorithm.Max()
		s.Remaining = min(max(c.e.left[j].Load(), s.Remaining), s.Limit)
		s.Used = s.Limit - s.Remaining
	}
	if f != nil {
		past := c.m.now() - f.at
		for j, s := range c.total(f) {
			if f.complete() {
				states[j].Used = s.Used + c.r.CostOf(j)
			}
			states[j].ResetAfter = max(states[j].ResetAfter, aged(s, past).ResetAfter) // mutant: latest-reset
		}
	}
	d.State = states[backend.Binding(states)]
	d.Estimated = f == nil || !f.complete() || f.sent < c.from // mutant: incomplete-sum-estimated
}

// fail applies the failure mode of the i-th share, where no store decided.
func (c *call) fail(ctx context.Context, i int, err error) error {
	err = c.s.Fail(ctx, c.undecided(i, err), c.d, err)
	c.whole()
	return err
}

// undecided returns the request on the i-th share, which no store decided, as
// the station that applies the failure modes takes it.
func (c *call) undecided(i int, err error) *backend.Request {
	c.part(&c.sub, i)
	c.sub.Last = c.r.Last
	c.sub.Unknown(err)
	return &c.sub
}

// meet applies the failure modes of the shares that nobody answers for, once
// the living ones are spent. Those that fail local have a count each.
func (c *call) meet(ctx context.Context, dead map[int]error) error {
	if c.s.fails == nil {
		return first(dead)
	}
	err := c.s.fails.FailAny(ctx, func(yield func(*backend.Request, error) bool) { c.deadParts(dead, yield) }, c.d)
	c.whole()
	return err
}

// deadParts yields the requests on the shares that nobody answers for, from any
// of them on.
func (c *call) deadParts(dead map[int]error, yield func(*backend.Request, error) bool) {
	k := len(c.e.subs)
	from := rand.IntN(k)
	for n := range k {
		i := (from + n) % k
		err, ok := dead[i]
		if !ok {
			continue
		}
		if !yield(c.undecided(i, err), err) {
			return
		}
	}
}

// whole makes of what a share's failure mode says the whole key's.
func (c *call) whole() {
	d := c.d
	if d.Source != backend.FromFailClosed && d.Source != backend.FromFailOpen { // that one says its own limits
		return
	}
	for j := range c.r.Policies {
		p := &c.e.plan.policies[j]
		if c.r.Each != nil {
			c.r.Each[j].Limit = p.Algorithm.Max()
		}
		if p.Name == d.Policy {
			d.Limit = p.Algorithm.Max()
		}
	}
}
