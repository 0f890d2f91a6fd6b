package batch

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
)

// call is one request in a queue. It keeps nothing of the caller's, since the
// caller may leave before the round trip ends.
type call struct {
	wire.Take
	op       backend.Op
	slot     int
	tag, key string
	policies []backend.Policy
	came     time.Duration // as wire.Now
	deadline time.Duration // as wire.Now: the end of the budget, or of the caller's context
	next     *call         // in the pending list
}

// calls are the ones that no caller uses.
var calls = sync.Pool{New: func() any { return &call{Take: wire.Take{Answered: make(chan struct{}, 1)}} }}

// newCall returns a call that asks what r does.
func newCall(ctx context.Context, tag string, slot int, r *backend.Request, budget time.Duration) *call {
	c := calls.Get().(*call)
	c.Ask(&r.Group)
	c.op, c.slot, c.tag, c.key, c.policies = r.Op, slot, tag, r.Key, r.Policies
	c.came = wire.Now()
	c.deadline = wire.Deadline(c.came, budget)
	if ends, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, wire.At(ends))
	}
	return c
}

// answer writes the call's answer. After an error the round trip may still use
// the call, so it is not used again.
func (c *call) answer(r *backend.Request, d *backend.Decision, err error) error {
	if err == nil {
		err = c.Decide(r.Op, &r.Group, d)
		calls.Put(c)
	}
	if err != nil {
		r.Unknown(err)
	}
	return err
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
