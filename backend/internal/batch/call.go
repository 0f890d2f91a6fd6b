package batch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
)

// call is one request on its way. It keeps nothing of the caller's, since the
// caller may leave before the round trip ends.
type call struct {
	wire.Call
	answered chan struct{} // gets one token when the answer is complete
	state    atomic.Int32

	op       backend.Op
	slot     int // of the tag, where the store is a cluster
	tag, key string
	policies []backend.Policy
	came     time.Duration // as now
	deadline time.Duration // as now: the end of the budget, or of the caller's context
	next     *call         // pending, or in its group
}

// The states of a call. A call that was left while it waited is never sent; one
// that was sent may have been counted. So these are what may be sent again, too:
// a call goes back from sent to waiting only where the server replied that it did
// not run the command.
const (
	waiting  int32 = iota
	sent           // stands in a command that was written
	left           // by its caller, for good
	answered       // its token is there, or on the way
)

// calls are the ones that no caller uses.
var calls = sync.Pool{New: func() any { return &call{answered: make(chan struct{}, 1)} }}

// newCall returns a call that asks what r does.
func newCall(ctx context.Context, tag string, slot int, r *backend.Request, budget time.Duration) *call {
	c := calls.Get().(*call)
	c.Ask(&r.Group)
	c.state.Store(waiting)
	c.op, c.slot, c.tag, c.key, c.policies = r.Op, slot, tag, r.Key, r.Policies
	c.came = now()
	c.deadline = Deadline(c.came, budget)
	if ends, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, ends.Sub(epoch))
	}
	return c
}

// wait returns nil when the call was answered. An error means that ctx has ended
// before. done is ctx.Done().
func (c *call) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-c.answered:
		return nil
	case <-done:
	}
	switch c.state.Swap(left) {
	case waiting:
		return fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err())
	case sent:
		return unknown(c.op, ctx.Err())
	}
	<-c.answered // both at once: what is known is worth more
	return nil
}

// decide writes the call's answer. After an error the round trip may still use
// the call, so it is not used again.
func (c *call) decide(r *backend.Request, d *backend.Decision, err error) error {
	if err == nil {
		err = c.Decide(r.Op, &r.Group, d)
	}
	if err != nil {
		r.Unknown(err)
		return err
	}
	calls.Put(c)
	return nil
}

// unknown is the error of a call that was sent and had no answer. A peek counted
// nothing all the same.
func unknown(op backend.Op, why error) error {
	if op == backend.Peek {
		return backend.Wrap(backend.ErrUnavailable, why)
	}
	return backend.Wrap(backend.ErrPerhapsCounted, why)
}

// left reports whether the caller has left.
func (c *call) left() bool { return c.state.Load() == left }

// notify tells the caller that its answer is complete, unless it has left.
func (c *call) notify() {
	if c.state.Swap(answered) != left {
		c.answered <- struct{}{}
	}
}

// refuse answers a call that was not sent.
func (c *call) refuse(why error) {
	c.Err = why
	c.notify()
}

// list is a queue of calls, first come first.
type list struct{ first, last *call }

func (l *list) push(c *call) {
	if c.next = nil; l.first == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

// prepend puts the calls of front before those of l.
func (l *list) prepend(front list) {
	switch {
	case front.first == nil:
	case l.first == nil:
		*l = front
	default:
		front.last.next = l.first
		l.first = front.first
	}
}

// group is the calls of one key that ask for one operation by one list of
// policies.
type group struct {
	wire.Group
	calls list
	slot  int
	other *group // of the same key, asking for something else
}

// init makes g the group that c is to join.
func (g *group) init(c *call) {
	g.Op, g.Key, g.Tag, g.Policies, g.slot = c.op, c.key, c.tag, c.policies, c.slot
}

// takes reports whether c asks for what the group's calls do.
func (g *group) takes(c *call) bool { return g.Op == c.op && g.Same(c.policies) } // mutant: groups-by-op-and-list

func (g *group) add(c *call) {
	g.calls.push(c)
	g.Size++
}

// awaited reports whether a caller waits for the answer to a call that was not
// sent yet.
func (g *group) awaited() bool {
	for c := g.calls.first; c != nil; c = c.next {
		if c.state.Load() == waiting {
			return true
		}
	}
	return false
}

// markSent is called when the group's command is written. It is the one instant
// that divides "certainly not counted" from "perhaps". It returns room that has
// the calls which were marked.
func (g *group) markSent(room []*wire.Call) []*wire.Call {
	begin := len(room)
	for c := g.calls.first; c != nil; c = c.next {
		if c.state.CompareAndSwap(waiting, sent) { // mutant: withdrawn-left-out
			room = append(room, &c.Call)
		}
	}
	g.Calls = room[begin:]
	return room
}

// markNotRun is called when the server replied that it did not run the command.
func (g *group) markNotRun() {
	for c := g.calls.first; c != nil; c = c.next {
		c.state.CompareAndSwap(sent, waiting)
	}
}

// fail gives the calls that nobody left the error, each with what is known of it:
// counted perhaps, or not. Nothing is sent any more.
func (g *group) fail(why error) {
	unsent, perhaps := backend.Wrap(backend.ErrUnavailable, why), unknown(g.Op, why)
	for c := g.calls.first; c != nil; c = c.next {
		switch c.state.Load() {
		case waiting:
			c.Err = unsent
		case sent:
			c.Err = perhaps
		}
	}
}

// notify answers the callers. The calls are theirs again.
func (g *group) notify() {
	for c := g.calls.first; c != nil; {
		next := c.next
		c.notify()
		c = next
	}
}
