package wire

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
)

// Take is one call of a group: what it asks, and after the round trip what it
// met. Its caller owns it, fills it, and may use it again once it was
// answered; a caller that leaves sooner leaves it to the round trip for good.
type Take struct {
	// Answered gets one token, for which it has room, when the fields below it
	// are filled. Whoever makes the take makes it, and Wait takes the token.
	Answered chan struct{}

	cost     int64
	costs    []int64 // one a policy; empty where every policy is asked cost
	state    atomic.Int32
	now, at  int64
	readings []backend.Reading // empty where the op has none
	err      error
}

// The states of a take. One that is left while it waits is never sent; one that
// was sent may have been counted.
const (
	waiting int32 = iota
	sent
	left // by its caller, for good
	told // its token is there, or on the way
)

// Ask makes the take ask what g does. It keeps nothing of the caller's: who
// has left may use its buffers for something else.
func (t *Take) Ask(g *backend.Group) {
	t.cost, t.costs, t.err = g.Cost, append(t.costs[:0], g.Costs...), nil
	t.readings = t.readings[:0]
	t.state.Store(waiting)
}

func (t *Take) costOf(i int) int64 {
	if len(t.costs) == 0 {
		return t.cost
	}
	return t.costs[i]
}

func (t *Take) sameCosts(u *Take) bool {
	if len(t.costs) == 0 && len(u.costs) == 0 {
		return t.cost == u.cost
	}
	return len(t.costs) == len(u.costs) && slices.Equal(t.costs, u.costs)
}

// Decide words the answer to g, on the goroutine whose buffers g names.
func (t *Take) Decide(op backend.Op, g *backend.Group, d *backend.Decision) error {
	if t.err == nil { // mutant: no-answer-with-error
		g.Decide(op, t.now, t.readings, d)
	}
	return t.err
}

// unknown is the error of what was sent and had no answer. What only peeked
// counted nothing all the same.
func unknown(op backend.Op, why error) error {
	if op == backend.Peek {
		return backend.Wrap(backend.ErrUnavailable, why)
	}
	return backend.Wrap(backend.ErrPerhapsCounted, why)
}

// fail gives all that nobody left the error, each as what is known of it:
// counted perhaps, or not. Nothing is sent any more.
func (g *Group) fail(why error) {
	var lost, unsent error // made once for all
	for _, t := range g.Takes {
		switch t.state.Load() {
		case waiting:
			if unsent == nil {
				unsent = backend.Wrap(backend.ErrUnavailable, why)
			}
			t.err = unsent
		case sent:
			if lost == nil {
				lost = unknown(g.Op, why)
			}
			t.err = lost
		}
	}
}

// refuse gives all that were sent the error of a group that the script
// decided nothing of.
func (g *Group) refuse(err error) {
	for _, t := range g.sent {
		t.err = err
	}
}

// mark moves the takes that nobody left from waiting to sent. It is the one
// instant that divides "certainly not counted" from "perhaps".
func (g *Group) mark() (any bool) {
	g.sent = g.sent[:0]
	for _, t := range g.Takes {
		if t.state.CompareAndSwap(waiting, sent) { // mutant: withdrawn-left-out
			g.sent = append(g.sent, t)
		}
	}
	return len(g.sent) > 0
}

// unmark is for a command that the server said it did not run. A take that was
// left stays so: nobody is there to be told.
func (g *Group) unmark() {
	for _, t := range g.sent {
		t.state.CompareAndSwap(sent, waiting)
	}
	g.sent = g.sent[:0]
}

// awaited reports whether a caller waits for an answer to a take that was not
// sent yet.
func (g *Group) awaited() bool {
	for _, t := range g.Takes {
		if t.state.Load() == waiting {
			return true
		}
	}
	return false
}

// deliver answers the callers. The takes are theirs again.
func (g *Group) deliver() {
	for _, t := range g.Takes {
		t.tell()
	}
	clear(g.Takes)
	g.Takes = g.Takes[:0]
}

// tell answers the caller, unless it has left.
func (t *Take) tell() {
	if t.state.Swap(told) != left {
		t.Answered <- struct{}{}
	}
}

// Left reports whether the caller has left.
func (t *Take) Left() bool { return t.state.Load() == left }

// Refuse answers a take that is on no trip, and was not sent, with an error.
func (t *Take) Refuse(why error) {
	t.err = why
	t.tell()
}

// Wait returns nil when the take was answered, and then it is the caller's
// again. An error says that ctx has ended before: the take is the trip's for
// good. done is ctx.Done().
func (t *Take) Wait(ctx context.Context, done <-chan struct{}, op backend.Op) error {
	select {
	case <-t.Answered:
		return nil
	case <-done:
	}
	switch t.state.Swap(left) {
	case waiting:
		return fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err())
	case sent:
		return unknown(op, ctx.Err())
	}
	<-t.Answered // both at once: what is known is worth more
	return nil
}
