package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/internal/invariant"
)

// call is one request on its way. It keeps nothing of the caller's, since the
// caller may leave before the round trip ends.
//
// The caller's goroutine and the batch's share it. state says whose it is, and each passes
// it on by one atomic swap. The fields other than state and answered belong to the batch
// until the answer, and to the caller after it.
type call struct {
	wire.Call
	own      group         // what it asks. The first call of a group lends it its own
	answered chan struct{} // gets one token when the answer is complete
	state    atomic.Int32
	lost     bool          // the client may still use the call: it is not used again
	came     time.Duration // as now
	deadline time.Duration // as now: the end of the budget, or of the caller's context
}

// The states of a call. A call that was left while it waited is never sent; one
// that was sent may have been counted. So these are what may be sent again, too.
// A call goes back from sent to waiting only where the server replied that it did
// not run the command.
const (
	waiting  int32 = iota
	sent           // stands in a command that was written
	left           // by its caller, for good: it is the batch's then
	answered       // its token is there, or on the way: it is the caller's then
)

// calls are the unused ones. Their groups are most of what a batch would
// allocate.
var calls = sync.Pool{New: func() any { return &call{answered: make(chan struct{}, 1)} }}

// newCall returns a call that asks what r does, and whose caller has waited before.
//
// The end of the caller's context only shortens the deadline: the call is not sent if no
// answer could come in time.
func newCall(ctx context.Context, tag string, waited time.Duration, r *backend.Request, budget time.Duration) *call {
	c := calls.Get().(*call)
	c.Ask(r, 0)
	g := &c.own
	g.Op, g.Key, g.Tag, g.Policies, g.Now, g.Again, g.other = r.Op, r.Key, tag, r.Policies, 0, false, nil
	g.calls, g.Calls, g.And, g.Joint = g.calls[:0], g.Calls[:0], others(r), joint(r, 0)
	g.Stops = r.Stops
	g.Follow(&c.Call)
	c.state.Store(waiting)
	//mutant:wait-for-slots-counts
	c.came = now() - waited
	c.deadline = Deadline(c.came, budget)
	if ends, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, ends.Sub(client.Epoch))
	}
	return c
}

// wait returns nil when the call was answered. An error says what is known of the
// count where ctx has ended before: the call is the batch's then.
func (c *call) wait(ctx context.Context) error {
	op := c.own.Op
	select {
	case <-c.answered:
		return nil
	//mutant:caller-leaves-at-once
	case <-ctx.Done():
	}
	switch c.state.Swap(left) {
	case waiting:
		return backend.Wrap(errUnsent, ctx.Err())
	case sent:
		return unknown(op, ctx.Err())
	}
	<-c.answered // both at once: what is known is worth more
	return nil
}

// decide waits for the call's answer and writes it.
func (c *call) decide(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := c.wait(ctx)
	if err == nil {
		err = c.Decide(r, c.own.And, d)
		if !c.lost {
			calls.Put(c)
		}
	}
	return err
}

// errUnsent is what is known where a context ended before the call was sent.
var errUnsent = errors.New("headgate: call not sent, not counted")

// unknown is the error of a call that was sent and had no answer. A peek counted
// nothing all the same.
func unknown(op backend.Op, why error) error {
	if op == backend.Peek {
		return backend.Wrap(backend.ErrUnavailable, why)
	}
	return backend.Wrap(backend.ErrPerhapsCounted, why)
}

// notify reports to the caller that its answer is complete. It returns false if the
// caller has left: then the call is the batch's.
//
// The token fits in the channel's buffer, so notify never blocks.
func (c *call) notify() bool {
	was := c.state.Swap(answered)
	if invariant.Checked {
		invariant.Holds(was != answered, "an answered call is answered once")
	}
	if was == left {
		return false
	}
	c.answered <- struct{}{}
	return true
}

// refuse answers a call that was not sent.
func (c *call) refuse(why error) {
	c.Err = why
	c.notify()
}

// group is the calls of one key that ask for one operation by one list of
// policies. It lies in the first of them.
//
// Groups of one key that ask for different things are linked by other. In a batch they
// stand in the order of their first calls, until the format sorts them.
type group struct {
	wire.Group
	calls []*call
	other *group // of the same key, asking for something else
}

// joint reports whether the i-th group of a request is decided all or nothing with others.
func joint(r *backend.Request, i int) bool {
	from, to := r.Alternative(i)
	return to-from > 1 && !r.Op.Ends()
}

// others returns the groups of a request's second and later keys, each with one call.
func others(r *backend.Request) (groups []*wire.Group) {
	for i := range r.And {
		of, c := &r.And[i], &wire.Call{}
		c.Ask(r, 1+i)
		groups = append(groups, &wire.Group{
			Op: r.Op, Key: of.Key, Tag: names.Tag(of.Key, of.Sub), Policies: of.Policies, Calls: []*wire.Call{c}, Else: of.Else, Stops: of.Stops, Joint: joint(r, 1+i),
		})
	}
	return groups
}

// policies returns how many the script looks at. Those of several keys, and of a Settle
// that wants states, it looks at twice.
func (g *group) policies() int {
	n := len(g.Policies)
	for _, h := range g.And {
		n += len(h.Policies)
	}
	if g.And != nil {
		n *= 2
	}
	if g.Then != nil {
		n *= 2
	}
	return n
}

// markSent is called when the group's command is written. It is the one instant
// that divides "certainly not counted" from "perhaps". It reports whether a caller
// still waits.
func (g *group) markSent() bool {
	g.Calls = g.Calls[:0]
	for _, c := range g.calls {
		//mutant:withdrawn-left-out
		if c.state.CompareAndSwap(waiting, sent) {
			g.Calls = append(g.Calls, &c.Call)
		}
	}
	if g.Withdrawn = len(g.Calls) == 0; g.Withdrawn {
		g.Calls = append(g.Calls, &g.calls[0].Call)
	}
	for _, h := range g.And { // which have no callers of their own
		h.Withdrawn = g.Withdrawn
	}
	return !g.Withdrawn
}

// markNotRun is called when the server replied that it did not run the command.
//
// A caller that has left meanwhile got ErrPerhapsCounted, and stays with it.
func (g *group) markNotRun() {
	for _, c := range g.calls {
		c.state.CompareAndSwap(sent, waiting)
	}
}

// fail gives the calls whose callers still wait the error, each with what is known of it:
// counted perhaps, or not. Nothing is sent any more. Lost calls are ones that the
// client may still use.
func (g *group) fail(why error, lost bool) {
	nothing, perhaps := backend.Wrap(backend.ErrUnavailable, why), unknown(g.Op, why)
	for _, c := range g.calls {
		c.lost = lost
		switch c.state.Load() {
		case waiting:
			c.Err = nothing
		case sent:
			c.Err = perhaps
		}
	}
}

// notify answers the callers. The calls are theirs again, and with the first one,
// which is the last here, so is the group.
func (g *group) notify() {
	for i := len(g.calls) - 1; i >= 0; i-- {
		if c := g.calls[i]; !c.notify() && !c.lost {
			calls.Put(c)
		}
	}
}
