package script

import (
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

	// Busy says that the caller may be waiting for another of its takes when
	// this one is answered. Ask clears it.
	Busy bool

	cost     int64
	costs    []int64 // one a policy; empty where every policy is asked cost
	state    atomic.Int32
	now, at  int64
	readings []backend.Reading // empty where the op has none
	err      error
	then     *Take // whom its caller wakes
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
	t.readings, t.then, t.Busy = t.readings[:0], nil, false
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
	if t.err == nil {
		g.Decide(op, t.now, t.at, t.readings, d)
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
		if t.state.CompareAndSwap(waiting, sent) {
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
