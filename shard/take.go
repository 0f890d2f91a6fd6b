package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// call is one request on a spread key. Its decision is zero until one is made: the
// denial of a share that the call does not end with is taken back.
type call struct {
	s          *Store
	r          *backend.Request
	d          *backend.Decision
	k          *hotKey
	cache      *denial.Cache
	denials    *denial.Set // of the key
	generation uint64      // of denials, when the call began
	from       time.Duration
	sub        backend.Request // on the share that is asked
	sum        *reading        // nil until the call has one
	asked      int             // the share that was asked last
	err        error           // of the last share that did not answer
	again      bool            // a share that had not answered was asked again
	told       bool            // some share has answered
}

// calls are those that nobody makes.
var calls = sync.Pool{New: func() any { return new(call) }}

// How many shares may deny a call before it reads the sum, and after, and how many
// may not answer it: a dead node has many.
const (
	tries  = 2
	deaths = 4
)

// take asks the share of the current turn. Nearly every call ends there. The others
// ask one more share that is seen with room, then read the sum, and ask up to two
// shares that it shows with room. After each step the call is denied if by now every
// share is remembered to deny it.
func (c *call) take(ctx context.Context) error {
	c.from = c.cache.Now()
	c.k.calls.Add(1)
	defer c.k.calls.Add(-1)
	if i := c.k.draw(&c.r.Group, c.from); i >= 0 {
		if done, err := c.ask(ctx, i); done {
			return err
		}
	}
	if c.s.shared.Budget == 0 {
		return c.more(ctx)
	}
	// Each request has a budget of its own, and the call has one for all of them.
	left := c.s.shared.Budget - (c.cache.Now() - c.from)
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err := c.more(bounded)
	// The call's own deadline ended it, not the caller's. What was perhaps counted stays so.
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !layer.Undecided(err) { // mutant: perhaps-counted-stays
		return c.fail(ctx, fmt.Errorf("%w: the budget was spent on other sub-keys", backend.ErrUnavailable))
	}
	return err
}

// more asks another share, and then those that a sum shows room in. A call that
// loses the race for that room twice is denied, though there may be more elsewhere.
func (c *call) more(ctx context.Context) error {
	for _, tries := range []int{tries - 1, tries} {
		if done, err := c.try(ctx, tries); done {
			return err
		}
		if done, err := c.settle(ctx); done {
			return err
		}
		if c.sum == nil {
			if err := c.readSum(ctx); err != nil {
				return err
			}
		}
	}
	return c.lost()
}

// try asks shares that have room until one passes the call.
func (c *call) try(ctx context.Context, tries int) (done bool, err error) {
	for denied, dead := 0, 0; denied < tries && dead < deaths; {
		i := -1
		if c.sum == nil {
			i = c.k.draw(&c.r.Group, c.cache.Now())
		} else if i = c.sum.draw(&c.r.Group); i >= 0 {
			c.k.claim(i, &c.r.Group)
		}
		if i < 0 {
			return false, nil
		}
		if c.sum != nil && denied > 0 {
			c.s.stats.seconds.Add(1)
		}
		switch done, err := c.ask(ctx, i); {
		case done:
			return true, err
		case err != nil:
			dead++
		default:
			denied++
		}
	}
	return false, nil
}

// settle denies the call, or applies the failure modes, where no share may have
// room. What was not told to this call is not the store's answer: the deny cache
// must not prolong it. Shares that did not answer an earlier call are asked once
// more: a full queue, a slot on its way, one lost connection are no dead node, and a
// dead node's circuit answers at once.
func (c *call) settle(ctx context.Context) (done bool, err error) {
	v := c.k.conclude(&c.r.Group, c.cache.Now())
	switch {
	case v == nil:
		return false, nil // another may have room by now; mutant: share-is-not-key
	case len(v.dead) > 0 && c.again:
		return true, c.failAny(ctx, v.dead)
	case len(v.dead) > 0:
		c.again = true
		if done, err := c.ask(ctx, v.dead[rand.IntN(len(v.dead))]); done {
			return true, err
		}
		return c.settle(ctx)
	case c.cache.Closed(): // mutant: closed-before-verdict
		c.part(0)
		return true, c.s.next.Do(ctx, &c.sub, c.d) // which returns the error
	}
	denial.Deny(&c.r.Group, c.d, v.States, 0)
	if !c.told || v.Sent < c.from || !v.alike { // mutant: told-to-this-call
		c.d.Source, c.d.Estimated = backend.FromDenyCache, true
	}
	v.Generation = c.generation
	c.denials.Note(&c.r.Group, v.Denial)
	return true, nil
}

// readSum reads all sub-keys that may have room for the call's costs, together with
// the calls that need it at the same time: a spent key must not be read once by each
// of its callers. The reading goes on without a caller that leaves.
func (c *call) readSum(ctx context.Context) error {
	r, k, s, cache, denials := *c.r, c.k, c.s, c.cache, c.denials
	r.Op, r.Costs, r.StoreTime = backend.Peek, slices.Clone(r.Costs), nil // the caller's are not used after it leaves
	background := context.WithoutCancel(ctx)                              // mutant: sum-outlives-caller
	costs := fmt.Sprint(denial.Costs(&r.Group))                           // mutant: one-sum-for-all
	answer := k.sums.DoChan(costs, func() (any, error) {
		s.stats.sums.Add(1)
		f := k.read(background, s.next, &r, k.doubtful(&r.Group, cache.Now()), cache.Now)
		if f.observe(&r.Group, false) {
			denials.Forget()
		}
		return f, f.refused()
	})
	if begin := time.Now(); c.r.StoreTime != nil {
		defer func() { c.r.StoreTime.Add(int64(time.Since(begin))) }()
	}
	select {
	case got := <-answer:
		c.sum, _ = got.Val.(*reading)
		c.told = true
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("headgate: nothing counted: %w", ctx.Err())
	}
}

// ask takes from the i-th share. The call is done where that passed, or where it
// must not go on: a take that was perhaps counted is not tried elsewhere.
func (c *call) ask(ctx context.Context, i int) (done bool, err error) {
	c.part(i)
	if n := len(c.sub.Policies); n > 1 && c.sub.Each == nil {
		c.sub.Each = make([]backend.State, n)
	}
	err = c.s.attempt(ctx, &c.sub, c.d)
	switch {
	case err == nil:
		return c.answered(i), nil
	case errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil: // a caller that left says nothing of the share; mutant: lost-answer-ends-call
		c.k.subs[i].avoided.Store(int64(c.cache.Now() + avoidFor))
		c.err = err
		return false, err
	}
	return true, c.fail(ctx, err)
}

// part makes c.sub the request on the i-th share. The store writes its receipt, which
// so names the sub-key that was charged.
func (c *call) part(i int) {
	c.asked, c.sub = i, *c.r
	c.sub.Sub, c.sub.Policies = c.k.sub(i), c.k.part(i)
}

// answered makes the call's decision of what the i-th share answered, if it passed. A
// share's denial is not the key's.
func (c *call) answered(i int) (passed bool) {
	c.told = true
	d, one := c.d, [1]backend.State{c.d.State}
	states := c.sub.Each
	if states == nil {
		states = one[:]
	}
	if c.k.observe(i, &c.r.Group, d.Allowed, states, c.from, c.cache.Now) {
		c.denials.Forget()
	}
	if !d.Allowed {
		*d = backend.Decision{} // mutant: denial-taken-back
		return false
	}
	c.widen(states)
	return true
}

// widen makes the states of a share that passed the call those of the key. What
// remains is the sum of what was last seen in each share. After a sum, what is used
// is the sum's, which may be more than the limit leaves where a share holds more
// than its part, and the key is as new when the last share is.
func (c *call) widen(states []backend.State) {
	for j := range states {
		s := &states[j]
		s.Limit = c.k.policies[j].Algorithm.Max()
		s.Remaining = min(max(c.k.left[j].Load(), s.Remaining), s.Limit)
		s.Used = s.Limit - s.Remaining
	}
	f := c.sum
	if f != nil {
		age := c.cache.Now() - f.told
		for j, s := range f.with(&c.r.Group) {
			if f.complete() {
				states[j].Used = s.Used + c.r.CostOf(j)
			}
			states[j].ResetAfter = max(states[j].ResetAfter, denial.Aged(s, age).ResetAfter) // mutant: latest-reset
		}
	}
	c.d.State = states[backend.Binding(states)]
	c.d.Estimated = f == nil || !f.complete() || f.sent < c.from // mutant: incomplete-sum-estimated
}

// fail applies the failure mode of the share that was asked last, where no store
// decided.
func (c *call) fail(ctx context.Context, err error) error {
	if c.s.fallback == nil {
		return err
	}
	err = c.s.fallback.Fail(ctx, c.undecided(c.asked, err), c.d, err)
	c.limits()
	return err
}

// failAny applies the failure modes of the shares without an answer, once the others
// are spent. Those that fail local have a count each.
func (c *call) failAny(ctx context.Context, dead []int) error {
	if c.s.fallback == nil {
		return c.err
	}
	from := rand.IntN(len(dead))
	err := c.s.fallback.FailAny(ctx, func(yield func(*backend.Request, error) bool) {
		for n := range dead {
			if !yield(c.undecided(dead[(from+n)%len(dead)], c.err), c.err) {
				return
			}
		}
	}, c.d)
	c.limits()
	return err
}

// undecided returns the request on the i-th share, which no store decided. Its receipt
// says whether the charge may count.
func (c *call) undecided(i int, err error) *backend.Request {
	c.part(i)
	c.sub.Unknown(err)
	return &c.sub
}

// limits writes the key's limits in place of a share's. A decision by FailLocal has
// limits of its own.
func (c *call) limits() {
	if c.d.Source != backend.FromFailClosed && c.d.Source != backend.FromFailOpen {
		return
	}
	for j := range c.k.policies {
		p := &c.k.policies[j]
		if c.r.Each != nil {
			c.r.Each[j].Limit = p.Algorithm.Max()
		}
		if p.Name == c.d.Policy {
			c.d.Limit = p.Algorithm.Max()
		}
	}
}

// lost denies a call that lost the races for what the sum had shown, or found none,
// where a share may have room again by now.
func (c *call) lost() error {
	if c.sum.draw(&c.r.Group) >= 0 {
		c.s.stats.wrong.Add(1)
	}
	states := c.sum.with(&c.r.Group)
	states[backend.Binding(states)].RetryAfter = again
	denial.Deny(&c.r.Group, c.d, states, 0)
	c.d.Source, c.d.Estimated = backend.FromDenyCache, true // not the store's answer; see settle
	return nil
}

// again is the RetryAfter of a call that lost every race: there may be room now.
const again = time.Millisecond
