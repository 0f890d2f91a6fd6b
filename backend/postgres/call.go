package postgres

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// call is one request on its way. It has a copy of all that the caller may use again, since
// the caller may leave before the transaction ends.
//
// The caller's goroutine and the flight's share it. The fields but state and answered belong
// to the flight until the answer, and to the caller after it.
type call struct {
	backend.Request
	decision backend.Decision
	err      error
	ids      []string // of its keys: see rowID
	parked   int      // behind how many keys it was; the queue's
	came     time.Time
	deadline time.Time
	answered chan struct{} // gets one token when the answer is complete
	state    atomic.Int32
}

// The states of a call. A call that was left while it waited is never decided. One that was
// decided may be counted, once the transaction commits.
const (
	waiting int32 = iota
	decided
	abandoned
	complete
)

// newCall returns a call that requests what r does.
func newCall(ctx context.Context, r *backend.Request, budget time.Duration) *call {
	c := &call{Request: *r, answered: make(chan struct{}, 1), came: time.Now()}
	c.deadline = c.came.Add(budget)
	if ends, ok := ctx.Deadline(); ok && ends.Before(c.deadline) {
		c.deadline = ends
	}
	c.And = slices.Clone(r.And)
	for i := range 1 + len(c.And) {
		g := c.GroupAt(i)
		c.ids = append(c.ids, rowID(g.Key, g.Sub))
		g.Costs, g.Each, g.Via = slices.Clone(g.Costs), slices.Clone(g.Each), nil
		if g.Lease != nil {
			l := *g.Lease
			l.Actual = slices.Clone(l.Actual)
			g.Lease = &l
		}
	}
	if r.Loan != nil {
		l := *r.Loan
		l.Each = slices.Clone(l.Each)
		c.Loan = &l
	}
	c.StoreTime = nil
	return c
}

// wait waits for the answer and writes it to the caller's request and decision.
func (c *call) wait(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if r.StoreTime != nil {
		defer func() { r.StoreTime.Add(int64(time.Since(c.came))) }()
	}
	select {
	case <-c.answered:
		return c.copy(r, d)
	case <-ctx.Done():
	}
	switch c.state.Swap(abandoned) {
	case waiting:
		return backend.Wrap(errUnsent, ctx.Err())
	case decided:
		return unknown(r.Op, ctx.Err())
	}
	<-c.answered // both at once: what is known is worth more
	return c.copy(r, d)
}

// copy writes the answer to what the caller has.
func (c *call) copy(r *backend.Request, d *backend.Decision) error {
	if c.err != nil {
		return c.err
	}
	*d = c.decision
	for i := range 1 + len(r.And) {
		copy(r.GroupAt(i).Each, c.GroupAt(i).Each)
	}
	if r.Loan != nil {
		r.Loan.Lent = c.Loan.Lent
		copy(r.Loan.Each, c.Loan.Each)
	}
	return nil
}

// decides reports whether the call may be decided now: its caller waits.
func (c *call) decides() bool { return c.state.CompareAndSwap(waiting, decided) }

// answer completes the call. The token fits in the channel's buffer, so it never blocks.
func (c *call) answer(err error) {
	c.err = err
	if c.state.Swap(complete) != abandoned {
		c.answered <- struct{}{}
	}
}

var errUnsent = errors.New("headgate: call not sent, not counted")

// unknown is the error of a call that was decided and whose transaction may have been
// committed. A peek counted nothing all the same.
func unknown(op backend.Op, why error) error {
	if op == backend.Peek {
		return backend.Wrap(backend.ErrUnavailable, why)
	}
	return backend.Wrap(backend.ErrPerhapsCounted, why)
}
