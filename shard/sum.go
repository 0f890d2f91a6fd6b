package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
)

// round is what a key's sub-keys answered to one request.
type round struct {
	plan    *plan
	asked   []int // shares
	answers []layer.Answer
	each    []backend.State // one a policy for each that was asked
	at      time.Duration   // when they had answered
	sent    time.Duration   // and before they were asked
}

// askAll asks the sub-keys of these shares at once.
func (c *call) askAll(ctx context.Context, op backend.Op, shares []int) *round {
	n := len(c.r.Policies)
	f := &round{c.e.plan, shares, make([]layer.Answer, len(shares)), make([]backend.State, len(shares)*n), 0, c.m.now()}
	rs := make([]backend.Request, len(shares))
	for i, share := range shares {
		c.part(&rs[i], share)
		rs[i].Op, rs[i].Receipt, rs[i].Each = op, nil, f.states(i)
	}
	layer.DoAll(ctx, c.s.next, rs, f.answers)
	return f
}

// all asks every sub-key.
func (c *call) all(ctx context.Context, op backend.Op) *round {
	shares := make([]int, len(c.e.subs))
	for i := range shares {
		shares[i] = i
	}
	return c.askAll(ctx, op, shares)
}

// doubtful returns the shares that are not known to be spent for this cost.
// The others have no room until an instant that is known, so a sum need not
// read them: of a saturated TokenBucket, where every share has its own
// instant, that is most.
func (c *call) doubtful() (shares []int) {
	now := c.m.now()
	for i := range c.e.subs {
		if c.e.class(i, &c.r.Group, now) != spent {
			shares = append(shares, i)
		}
	}
	return shares
}

// rooms returns the shares that had room.
func (f *round) rooms() (shares []int) {
	for i := range f.answers {
		if f.answers[i].Err == nil && f.answers[i].Decision.Allowed {
			shares = append(shares, f.asked[i])
		}
	}
	return shares
}

func (f *round) states(i int) []backend.State {
	n := len(f.plan.policies)
	return f.each[i*n : (i+1)*n : (i+1)*n]
}

// wrong returns why the request itself was refused, nil where it was not.
func (f *round) wrong() error {
	for i := range f.answers {
		if err := f.answers[i].Err; err != nil && !layer.Undecided(err) {
			return err
		}
	}
	return nil
}

func (f *round) total() *total {
	t := newTotal(f.plan)
	for i := range f.answers {
		if f.answers[i].Err == nil {
			t.add(f.states(i))
		}
	}
	return t
}

// complete reports whether every sub-key was asked, and answered.
func (f *round) complete() bool { return len(f.asked) == len(f.plan.parts) && len(f.dead()) == 0 }

// total sums what a round heard, and what is known of the shares that it left
// out.
func (c *call) total(f *round) []backend.State {
	t, said := f.total(), make([]backend.State, len(c.r.Policies))
	for i := range c.e.subs {
		h := c.e.subs[i].shut.Load()
		if _, asked := slices.BinarySearch(f.asked, i); !asked && h != nil {
			h.tell(said, &c.r.Group, f.at)
			t.add(said)
		}
	}
	return t.states()
}

// lonely reports whether nobody decided, and nothing was counted.
func lonely(err error) bool { return errors.Is(err, backend.ErrUnavailable) }

// keep notes what a round said, for all calls that come. One whose caller left
// says nothing of who did not answer.
func (c *call) keep(ctx context.Context, f *round) {
	now := c.m.now()
	f.at = now
	for i := range f.answers {
		a := &f.answers[i]
		switch {
		case a.Err == nil:
			c.e.learn(f.asked[i], &a.Decision, f.states(i), &c.r.Group, f.sent, func() time.Duration { return now })
		case layer.Undecided(a.Err):
			if !lonely(a.Err) { // what only reads counts nothing
				a.Err = backend.Wrap(backend.ErrUnavailable, errors.New(a.Err.Error()))
			}
			if ctx.Err() == nil {
				c.e.bury(f.asked[i], a.Err, now)
			}
		}
	}
}

// reading is a sum under way.
type reading struct {
	done  chan struct{}
	costs []int64
	round *round // written before done is closed; nil where whoever read was ended
}

// sum reads all sub-keys that may have room for this cost, with those who need
// it at the same time: a spent key must not be read once by each of its callers.
// The reading goes on without a caller who leaves.
func (c *call) sum(ctx context.Context) (*round, error) {
	for {
		f, leads := c.join()
		switch {
		case leads && ctx.Done() == nil:
			c.read(ctx, f)
		case leads:
			r := *c.r
			r.Each, r.Receipt, r.Costs = nil, nil, slices.Clone(r.Costs) // the caller's are his, who may leave
			own := &call{s: c.s, m: c.m, r: &r, e: c.e}                  // mutant: sum-outlives-caller
			go own.read(context.WithoutCancel(ctx), f)
			fallthrough
		default:
			select {
			case <-f.done:
			case <-ctx.Done():
				return nil, fmt.Errorf("headgate: nothing counted: %w", ctx.Err())
			}
		}
		if f.round == nil {
			continue
		}
		return f.round, f.round.wrong()
	}
}

// join returns the sum under way that answers this call too, or a new one that
// the caller leads.
func (c *call) join() (f *reading, leads bool) {
	n := costs(&c.r.Group)
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if f = c.e.mu.reading; f != nil && slices.Equal(f.costs, n) { // mutant: one-sum-for-all
		return f, false
	}
	f = &reading{done: make(chan struct{}), costs: n}
	if c.e.mu.reading == nil {
		c.e.mu.reading = f
	}
	return f, true
}

func (c *call) read(ctx context.Context, f *reading) {
	defer func() {
		c.e.mu.Lock()
		if c.e.mu.reading == f {
			c.e.mu.reading = nil
		}
		c.e.mu.Unlock()
		close(f.done)
	}()
	c.s.done.sums.Add(1)
	round := c.askAll(ctx, backend.Peek, c.doubtful())
	c.keep(ctx, round)
	f.round = round
}
