package script

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// chain is how many takes of a key are told as one: the trip wakes the first's
// caller, and each who is woken wakes the next before anything else. The next
// runs on its waker's processor then, soon after it; where the trip wakes all,
// they queue up on one processor, and the other takes them away. With 512
// callers on one key a sixth more decisions on two cores, in chains of eight no
// more. A caller that loses its processor before it has woken the next
// delays the three behind it, and no others.
const chain = 4

// deliver tells who waits, in chains. The takes are their callers' again. Who
// may be busy elsewhere ends its chain, and is not to wake anybody.
func (g *Group) deliver() {
	first := 0
	for i, t := range g.Takes {
		next := i + 1
		if next < len(g.Takes) && next-first < chain && !t.Busy {
			t.then = g.Takes[next]
			continue
		}
		g.Takes[first].tell()
		first = next
	}
	clear(g.Takes)
	g.Takes = g.Takes[:0]
}

// tell wakes the first of a chain, from t on, that its caller has not left.
// One that is told may be used for something else already: only those that
// were left are looked at again.
func (t *Take) tell() {
	for ; t != nil; t = t.then {
		if t.state.Swap(told) != left {
			t.Answered <- struct{}{}
			return
		}
	}
}

// Wait returns nil when the take was answered, and then it is the caller's
// again. An error says that ctx has ended before: the take is the trip's for
// good. done is ctx.Done(), which was asked for before the take was on a trip: a
// context is its caller's code, and if that panics here, nobody wakes the next.
func (t *Take) Wait(ctx context.Context, done <-chan struct{}, op backend.Op) error {
	if done == nil {
		<-t.Answered
	} else {
		select {
		case <-t.Answered:
		case <-done:
			if err := t.leave(ctx, op); err != nil {
				return err
			}
			<-t.Answered // both at once: what is known is worth more
		}
	}
	t.then.tell()
	return nil
}

// leave leaves the take to its trip, because ctx has ended: what was not sent
// yet never will be, and what was is perhaps counted. It does not where the
// take is being told: others may wait for its caller to wake them.
func (t *Take) leave(ctx context.Context, op backend.Op) error {
	switch t.state.Swap(left) {
	case waiting:
		return fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err())
	case sent:
		return unknown(op, ctx.Err())
	}
	return nil
}
