package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// A call on a spread key takes from one sub-key, a share. Its steps, of which nearly every
// call needs the first only:
//
//   - level sums all shares before the first take by a list, and again once a share is seen
//     above its part of the limit, which was lowered then.
//   - take draws a share by the key's turn and sends the request there.
//   - more tries another share that was last seen with room.
//   - Then it reads the sum of all shares, once for all callers that wait for it, and tries
//     up to two shares that the sum shows with room.
//   - deny ends the call when every share is known to deny it, or when it has lost the race
//     for what the sum showed.
//   - fail applies the failure modes to shares that did not answer, after a second reading.
//   - widen turns a share's states into the key's.
//
// upTo repeats take, share by share. askAll is a Peek or a Reset, of all shares.
//
// Invariants:
//   - At most one share is charged per take. A take that was perhaps counted is not tried
//     elsewhere.
//   - A denial names no share: it is the key's, and only a reading of every share makes it.
//   - The call ends within the store's budget, whatever number of shares it tried.

// call is one request on a spread key. Its decision is zero until one is made: the
// denial of a share that the call does not end with is taken back.
//
// It is pooled, used by one goroutine, and cleared after its end.
type call struct {
	s          *Store
	r          *backend.Request
	d          *backend.Decision
	k          *hotKey
	generation uint64 // of the key's denials, when the call began
	from       time.Duration
	sub        backend.Request  // on the share that is asked
	one        [1]backend.State // for its states, where the caller wants none
	sum        *reading         // nil until the call has one
	misses     int              // shares that denied the call, since it has the sum
	lost       error            // of the last share that did not answer since then; nil: all did
	at         int              // that share
	took       bool             // of a run UpTo: some of its calls have passed
}

// calls are the unused ones.
var calls = sync.Pool{New: func() any { return new(call) }}

// How many shares may deny a call before it reads the sum, and after. asks is how many one
// call asks each time, with those that don't answer: a dead node has many.
const (
	tries = 2
	asks  = 5
)

// take asks the share of the current turn. Nearly every call ends there. The others
// ask one more share that is seen with room. Then they read the sum, and ask up to two
// shares that it shows with room. After each step the call is denied if by now every
// share is remembered to deny it.
func (c *call) take(ctx context.Context) error {
	// The calls in flight say how many calls a turn has.
	c.k.calls.Add(1)
	defer c.k.calls.Add(-1)
	if c.k.level.Load() {
		if i := c.k.draw(&c.r.Group, c.from); i >= 0 {
			if done, err := c.ask(ctx, i); done {
				return err
			}
		}
	}
	// Each request has a budget of its own, and the call has one for all of them.
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	err := c.more(bounded)
	//mutant:take-beyond-budget
	if ended := layer.BudgetEnded(bounded, err); ended != nil {
		return c.fail(ctx, ended, chance.IntN(len(c.k.subs)))
	}
	return err
}

// bounded returns a context that ends with what is left of the call's budget.
func (c *call) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	budget := c.s.shared.Budget
	if budget == 0 {
		return ctx, func() {}
	}
	return layer.Within(ctx, budget, budget-(c.k.denials.Now()-c.from))
}

// more is what take does after the first share. A share without an answer is not asked
// again soon, so each step asks others. A call that loses the race for what a sum shows
// twice is denied, though there may be more elsewhere. A sum that lacks some shares denies
// nothing: the failure mode decides. Shares that did not answer are read once more before
// their failure modes apply. A full queue, a slot on its way, one lost connection are no
// dead node, and a dead node's circuit answers at once.
func (c *call) more(ctx context.Context) error {
	for again := false; ; {
		if done, err := c.leveled(ctx); done {
			return err
		}
		for n := 0; n < asks && c.misses < tries; n++ {
			i := c.k.deal(&c.r.Group, c.k.denials.Now())
			if i < 0 {
				break
			}
			if done, err := c.ask(ctx, i); done {
				return err
			}
		}
		v := c.k.view(&c.r.Group, c.k.denials.Now())
		spent, lost := len(v.open) == 0, len(v.open) > 0 && c.sum != nil
		switch {
		//mutant:partial-sum-denies-nothing
		case lost && len(c.sum.dead) > 0:
			return c.fail(ctx, c.sum.err, c.sum.dead...)
		//mutant:no-time-denies-nothing
		case lost && c.misses < tries && c.lost != nil:
			return c.fail(ctx, c.lost, c.at)
		case spent && len(v.dead) == 0, lost:
			return c.deny(v)
		case spent && again:
			return c.fail(ctx, cmp.Or(c.sum.err, backend.ErrUnavailable), v.dead...) // perhaps another call met them
		}
		var err error
		if c.sum, err = c.k.readSum(ctx, c.s, c.r, append(v.open, v.dead...)); err != nil {
			return err
		}
		c.misses, c.lost, again = 0, nil, spent
	}
}

// ask takes from the i-th share. The call is done where that passed, or where it
// must not go on. A take that was perhaps counted is not tried elsewhere. A share's denial is
// not the key's.
func (c *call) ask(ctx context.Context, i int) (done bool, err error) {
	switch err = c.send(ctx, i); {
	case err == nil && c.d.Allowed:
		c.widen(c.sub.Each)
		return true, nil
	case err == nil:
		c.misses++
		//mutant:denial-taken-back
		*c.d = backend.Decision{}
		return false, nil
	//mutant:lost-answer-ends-call
	case errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil:
		c.lost, c.at = err, i
		return false, err
	}
	//mutant:run-beyond-budget
	return true, c.fail(ctx, cmp.Or(layer.BudgetEnded(ctx, err), err), i)
}

// send asks the i-th share, and notes what it answers.
func (c *call) send(ctx context.Context, i int) error {
	c.part(i)
	if n := len(c.sub.Policies); c.sub.Each == nil {
		c.sub.Each = slices.Grow(c.one[:0], n)[:n]
	}
	c.k.claim(i, &c.r.Group)
	err := c.s.next.Do(ctx, &c.sub, c.d)
	if err == nil {
		c.k.observe(i, &c.r.Group, c.d.Allowed, c.sub.Each, c.from)
	} else if errors.Is(err, backend.ErrUnavailable) {
		c.k.unanswered(ctx, i, err)
	}
	return err
}

// part makes c.sub the request on the i-th share.
func (c *call) part(i int) {
	c.sub = *c.r
	c.sub.Sub, c.sub.Policies, c.sub.Shards = c.k.names.Name(i), c.k.subs[i].policies, 0
}

// upTo takes as many calls of a run as there is room for from one share after the other.
// What it took stands also if a later share fails, or if no time is left of the call's budget.
//
// Each share is charged by a request of its own. If one is perhaps counted, what the others
// gave is the answer, and the loss is counted in the statistics.
func (c *call) upTo(ctx context.Context) (err error) {
	r, took, each := *c.r, backend.Decision{}, make([]backend.State, len(c.r.Each))
	c.r = &r // which has the calls that are left
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	for r.Run > 0 {
		*c.d, c.sum, c.misses, c.lost = backend.Decision{}, nil, 0, nil
		if err = c.take(ctx); err != nil || !c.d.Allowed || c.d.Source != backend.FromStore {
			break
		}
		r.Run -= c.d.Passed
		c.d.Passed += took.Passed
		took, c.took = *c.d, true
		for j, was := range each {
			s := &each[j]
			*s = r.Each[j]
			s.Passed = int32(min(int64(was.Passed)+int64(s.Passed), math.MaxInt32))
			s.RetryAfter = max(was.RetryAfter, s.RetryAfter) // of a shadow without room for all
		}
	}
	if took.Passed == 0 {
		return err
	}
	copy(r.Each, each) // not those of the denial that ended it
	//mutant:part-has-next-after
	if took.NextAfter = c.d.RetryAfter; err != nil { // as of a call that failed closed
		took.NextAfter = time.Second
	}
	*c.d = took
	return nil
}

// widen makes the states of a share that passed the call those of the key. What
// remains is the sum of what was last seen in each share. After a sum of all, what is
// used is the sum's. That may be more than the limit leaves where a share holds more
// than its part. The key is unused when the last share is.
func (c *call) widen(states []backend.State) {
	// A sum is exact if every sub-key was asked since the call began, and answered. A run UpTo
	// may have charged other shares too.
	//mutant:incomplete-sum-estimated
	exact := c.sum != nil && c.sum.whole && c.sum.sent >= c.from && !c.r.UpTo
	for j := range states {
		s := &states[j]
		s.Limit = c.k.policies[j].Algorithm.Max()
		s.Remaining = min(max(c.k.left[j].Load(), s.Remaining), s.Limit)
		//mutant:share-is-estimated
		s.Used, s.Known = s.Limit-s.Remaining, backend.Estimated
		if exact {
			if s.Used = c.sum.states[j].Used; s.RetryAfter == 0 {
				s.Used += c.r.CostOf(j)
			}
			//mutant:latest-reset
			s.ResetAfter = max(s.ResetAfter, c.sum.states[j].ResetAfter)
		}
		if c.r.UpTo && (!c.k.policies[j].Shadow || int64(s.Passed) == c.d.Passed) {
			s.RetryAfter = 0 // of the next call on this share
		}
	}
	if exact {
		for j := range backend.Enforced(c.k.policies) { // a shadow is decided by this share
			states[j].Known = backend.Exact
		}
	}
	c.d.State = c.k.decide(states).State
}

// deny denies the call: no share has room, or it lost the races for what a sum had shown,
// and may ask again soon. What this call did not receive is not the store's answer: the
// deny cache above must not prolong it. The key's denial goes to that cache from here,
// with the time of the oldest share's denial. Nothing is answered from memory once the
// store was closed.
func (c *call) deny(v *view) error {
	//mutant:closed-before-denial
	if c.s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	if len(v.open) > 0 {
		v.States, v.alike = slices.Clone(c.sum.states), false // others have taken since
		v.States[backend.Binding(c.k.policies, v.States)].RetryAfter = time.Millisecond
		if c.k.deal(&c.r.Group, c.k.denials.Now()) >= 0 {
			c.s.stats.wrong.Add(1)
		}
	} else {
		c.k.denials.At(c.k.key).Note(&c.r.Group, &v.Denial, denial.Needs(c.r), c.generation)
	}
	v.Answer(&c.r.Group, c.d, v.Told)
	//mutant:told-to-this-call
	if told := c.misses > 0 || c.sum != nil; told && v.Sent >= c.from && v.alike {
		c.d.Source, c.d.Known = backend.FromStore, backend.Exact
		for j := range c.r.Each { // of a shadow too
			c.r.Each[j] = v.State(j, &c.r.Group, v.Told)
		}
	}
	return nil
}

// fail applies the failure modes of shares that no store decided. Those that fail local
// have a count each. A run UpTo of which calls have passed ends with these.
func (c *call) fail(ctx context.Context, cause error, shares ...int) error {
	//mutant:at-most-charges-no-more
	if c.took {
		return cause
	}
	first := chance.IntN(len(shares))
	return c.s.next.Fail(ctx, c.r, c.d, cause, func(yield func(*backend.Request) bool) {
		for n := range shares {
			if c.part(shares[(first+n)%len(shares)]); !yield(&c.sub) {
				return
			}
		}
	})
}

// askAll decides a Peek or a Reset by the sum of all sub-keys. It joins no other reading,
// which may be older than the call. Where no share that answers a Peek has room, and some
// don't answer, their failure mode decides. A Reset returns the first error: then some
// sub-keys are reset and some may not be. It is not atomic: a concurrent call may be
// forgotten by its share or not.
func (c *call) askAll(ctx context.Context) error {
	all := c.k.all()
	f, err := c.k.read(ctx, c.s, c.r, all)
	switch dead := len(f.dead); {
	case dead > 0 && c.r.Op == backend.Reset:
		return backend.Wrap(fmt.Errorf("headgate: %d of %d sub-keys were reset", len(all)-dead, len(all)), f.err)
	case err != nil:
		return err
	case dead == len(all) || dead > 0 && c.k.retryAfter(f.states) > 0:
		return c.fail(ctx, f.err, f.dead...)
	}
	*c.d = c.k.decide(f.states)
	copy(c.r.Each, f.states)
	return nil
}
