package script

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// deliver tells who waits. The takes are their callers' again.
func (g *Group) deliver() {
	for _, t := range g.Takes {
		if t.state.Swap(told) != left {
			t.Answered <- struct{}{}
		}
	}
	clear(g.Takes)
	g.Takes = g.Takes[:0]
}

// Wait returns nil when the take was answered, and then it is the caller's
// again. An error says that ctx has ended before: the take is the trip's for
// good.
func (t *Take) Wait(ctx context.Context, op backend.Op) error {
	if done := ctx.Done(); done == nil {
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
	return nil
}

// leave leaves the take to its trip, because ctx has ended: what was not sent
// yet never will be, and what was is perhaps counted. It does not where the
// take is being told.
func (t *Take) leave(ctx context.Context, op backend.Op) error {
	switch t.state.Swap(left) {
	case waiting:
		return fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err())
	case sent:
		return unknown(op, ctx.Err())
	}
	return nil
}
