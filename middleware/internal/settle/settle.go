// Package settle runs the calls of a middleware as reservations: it reserves before a
// call, extends the lease while the call runs, and settles when the call has ended.
package settle

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
)

// MaxWait is the longest that a denied call waits for others to be settled.
const MaxWait = time.Minute

// The times of a settlement.
const (
	// grace is how long the end of a call waits for its settlement: some round trips.
	// So a caller that has seen the end finds its slot free.
	grace = 50 * time.Millisecond
	// longest bounds a settlement, whose context does not end with the call's.
	longest = 10 * time.Second
)

// Calls reserves for the calls of one middleware. It is safe for concurrent use and
// never copied.
type Calls struct {
	Limiter *headgate.Limiter
	Lease   time.Duration // of a call that names none
	Wait    time.Duration // how long a denied call waits for others of its key
	lines   lines
}

// Needed reports whether the limiter has a policy that only a reservation can charge.
func Needed(l *headgate.Limiter) bool {
	return slices.ContainsFunc(l.Policies(), func(p headgate.Policy) bool { return p.Algorithm.Kind().Leased() })
}

// Check refuses a lease, or a wait, that is out of range.
func Check(lease, wait time.Duration, settles bool) error {
	switch {
	case lease != 0 && (lease < time.Second || lease > 24*time.Hour || lease%time.Millisecond != 0):
		return &headgate.InvalidError{What: "lease", Value: lease, Want: "1s to 24h in whole milliseconds, or 0"}
	case wait < 0 || wait > MaxWait:
		return &headgate.InvalidError{What: "settle wait", Value: wait, Want: "0 to 1m"}
	case wait > 0 && !settles:
		return &headgate.InvalidError{What: "settle wait", Value: wait, Want: "0 without a Settle function"}
	}
	return nil
}

// Call is a call that passes and that is settled once it has ended.
type Call struct {
	Context  context.Context // the call's: it ends where the call's slots are lost
	Estimate []int64         // one per policy

	calls       *Calls
	parent      context.Context
	release     context.CancelFunc
	reservation *headgate.Reservation
	line        *line // nil: nobody waits
	key         string
	reported    atomic.Pointer[[]int64]
}

// Reserve decides a call. The Call is nil where it does not pass.
func (c *Calls) Reserve(ctx context.Context, call headgate.Call) (*Call, headgate.Decision, error) {
	if call.Lease == 0 {
		call.Lease = c.Lease
	}
	a := &answer{limiter: c.Limiter, ctx: ctx, call: call}
	var l *line
	if c.Wait > 0 {
		l = c.lines.ask(a, c.Wait)
	} else {
		a.ask()
	}
	if !a.passed() {
		return nil, a.decision, a.err
	}
	made := &Call{Estimate: call.Costs, calls: c, parent: ctx, reservation: a.reservation, line: l, key: call.Key}
	if made.Estimate == nil {
		made.Estimate = slices.Repeat([]int64{1}, len(c.Limiter.Policies()))
	}
	made.Context, made.release = a.reservation.Hold(context.WithValue(ctx, contextKey{}, made))
	return made, a.decision, nil
}

// answer is a reservation that is asked for, perhaps more than once.
type answer struct {
	limiter     *headgate.Limiter
	ctx         context.Context
	call        headgate.Call
	reservation *headgate.Reservation
	decision    headgate.Decision
	err         error
}

func (a *answer) ask() { a.reservation, a.decision, a.err = a.limiter.Reserve(a.ctx, a.call) }

func (a *answer) passed() bool { return a.err == nil && a.decision.Allowed }

// final reports whether a settlement of another call changes nothing: only what was
// counted is given back.
func (a *answer) final() bool { return a.err != nil || a.decision.Allowed || !a.decision.Counted }

type contextKey struct{}

// Report notes what the call of the context has used: units, one per policy. The last
// report stands.
func Report(ctx context.Context, used ...int64) {
	if c, ok := ctx.Value(contextKey{}).(*Call); ok {
		used = slices.Clone(used)
		c.reported.Store(&used)
	}
}

// Reported returns what Report noted; nil is nothing.
func (c *Call) Reported() []int64 {
	if used := c.reported.Load(); used != nil {
		return *used
	}
	return nil
}

// Settle ends the call. It settles by what was used; nil leaves the estimate. It
// returns when the store has answered, or after the grace. A settlement that fails
// leaves the estimate: it is charged until it has aged, and a slot is taken until the
// lease ends.
func (c *Call) Settle(used []int64) {
	c.release()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.commit(used)
		if c.line != nil {
			c.calls.lines.settled(c.key, c.line)
		}
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	}
}

// commit leaves the estimate where what was used is no list for these policies: else
// its slot would be taken until the lease ends.
func (c *Call) commit(used []int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.parent), longest) // mutant: settled-after-client-left
	defer cancel()
	if err := c.reservation.Commit(ctx, used...); errors.As(err, new(*headgate.InvalidError)) { // mutant: wrong-use-frees-slot
		_ = c.reservation.Commit(ctx)
	}
}
