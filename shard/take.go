package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// call is one request on a key that is spread.
type call struct {
	s *Store
	m *known
	r backend.Request // by value: whoever held a pointer would have it on the heap
	e *entry
	// from is when a take began, as m counts: what was sent from then on speaks of
	// a moment of the call's own. What it joins may have been sent before.
	from  time.Duration
	begin time.Time
	asked int  // the share that was asked last
	again bool // a share that had not answered was asked again
}

// How often a call asks. First come those that nothing is known against; then,
// when the sum was read, those that it showed room in. A call that nobody
// answers goes on to the next: a few times, since a dead node has many.
const (
	firsts = 2
	tries  = 2
	deaths = 4
)

func (c *call) take(ctx context.Context) (backend.Decision, error) {
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
		if d, err, done := c.try(ctx, i, nil, &n); done {
			return d, err
		}
	}
	return c.within(ctx, n)
}

// tally is what became of the shares that were tried.
type tally struct{ denied, dead int }

// try is ask, counted.
func (c *call) try(ctx context.Context, i int, f *round, n *tally) (d backend.Decision, err error, done bool) {
	d, err, done = c.ask(ctx, i, f)
	switch {
	case done:
	case err == nil:
		n.denied++
	default:
		n.dead++
	}
	return d, err, done
}

// within goes on for as long as the store's budget allows: each round has a
// budget of its own, and the call has one for all of them.
func (c *call) within(ctx context.Context, n tally) (backend.Decision, error) {
	if c.s.budget == 0 {
		return c.more(ctx, n)
	}
	bounded, cancel := context.WithDeadline(ctx, c.begin.Add(c.s.budget))
	defer cancel()
	d, err := c.more(bounded, n)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !backend.Undecided(err) {
		return c.fail(ctx, c.asked, fmt.Errorf("%w: the budget was spent on other sub-keys", backend.ErrUnavailable))
	}
	return d, err
}

// more asks a second share, and then all.
func (c *call) more(ctx context.Context, n tally) (backend.Decision, error) {
	for n.denied < firsts && n.dead < deaths {
		i := c.pick(n.denied > 0)
		if i < 0 {
			break
		}
		if d, err, done := c.try(ctx, i, nil, &n); done {
			return d, err
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
func (c *call) search(ctx context.Context) (backend.Decision, error) {
	f, err := c.sum(ctx)
	if err != nil {
		return backend.Decision{}, err
	}
	i, rooms := c.e.best(f.rooms(), &c.r.Group)
	for n := (tally{}); i >= 0 && n.denied < tries && n.dead < deaths; {
		if n.denied > 0 {
			c.s.done.seconds.Add(1)
		}
		c.e.claim(i, &c.r.Group)
		if d, err, done := c.try(ctx, i, f, &n); done {
			return d, err
		}
		i, rooms = c.e.best(rooms, &c.r.Group)
	}
	if v, exact := c.conclude(c.m.now()); v != nil {
		return c.say(ctx, v, exact)
	}
	if i >= 0 {
		c.s.done.wrong.Add(1)
	}
	return c.lost(f), nil
}

// ask takes from the i-th share, after the sum f where one was read. It is
// done where that passed, or where the call must not go on: a take that was
// perhaps counted is not tried elsewhere.
func (c *call) ask(ctx context.Context, i int, f *round) (d backend.Decision, err error, done bool) {
	c.asked = i
	r := c.part(i)
	if len(r.Policies) > 1 && r.Each == nil {
		r.Each = make([]backend.State, len(r.Policies))
	}
	d, err = c.s.next.Do(ctx, r)
	one := [1]backend.State{d.State}
	states := r.Each
	if states == nil {
		states = one[:]
	}
	switch {
	case err == nil:
		now := c.learnt(i, &d)
		if d.Allowed && f == nil {
			c.e.renew(i, states)
		}
		c.e.learn(i, &d, states, &c.r.Group, c.from, now)
		if d.Allowed {
			c.widen(&d, states, f)
		}
		return d, nil, d.Allowed
	case lonely(err) && ctx.Err() == nil: // a caller who left says nothing of the share
		c.e.bury(i, err, c.m.now())
		return d, err, false
	}
	d, err = c.fail(ctx, i, err)
	return d, err, true
}

// learnt reads the clock for an answer of the i-th share that stands for a
// while, or that may end what stands against it.
func (c *call) learnt(i int, d *backend.Decision) time.Duration {
	if d.Allowed && c.e.subs[i].shut.Load() == nil {
		return 0
	}
	return c.m.now()
}

// part returns the request on the i-th share.
func (c *call) part(i int) backend.Request {
	r := c.r
	r.Sub, r.Policies, r.Last = c.e.name(i), c.e.plan.parts[i], false
	return r
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
			states[j].ResetAfter = max(states[j].ResetAfter, aged(s, past).ResetAfter)
		}
	}
	d.State = states[backend.Binding(states)]
	d.Estimated = f == nil || !f.complete() || f.sent < c.from
}

// fail applies the failure mode of the i-th share, where no store decided.
func (c *call) fail(ctx context.Context, i int, err error) (backend.Decision, error) {
	d, err := c.s.Fail(ctx, c.undecided(i, err), err)
	return c.whole(d), err
}

// undecided returns the request on the i-th share, which no store decided, as
// the station that applies the failure modes takes it.
func (c *call) undecided(i int, err error) backend.Request {
	r := c.part(i)
	r.Last = c.r.Last
	r.Unknown(err)
	return r
}

// meet applies the failure modes of the shares that nobody answers for, once
// the living ones are spent. Those that fail local have a count each.
func (c *call) meet(ctx context.Context, dead map[int]error) (backend.Decision, error) {
	if c.s.fails == nil {
		return backend.Decision{}, first(dead)
	}
	own := *c // or every call would be on the heap
	d, err := c.s.fails.FailAny(ctx, func(yield func(backend.Request, error) bool) { own.deadParts(dead, yield) })
	return c.whole(d), err
}

// deadParts yields the requests on the shares that nobody answers for, from any
// of them on.
func (c *call) deadParts(dead map[int]error, yield func(backend.Request, error) bool) {
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
func (c *call) whole(d backend.Decision) backend.Decision {
	if d.Source != backend.FromFailClosed && d.Source != backend.FromFailOpen { // that one says its own limits
		return d
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
	return d
}
