// Package wait queues calls until they pass.
//
// [Queues] holds a queue per key and list of policies that count alike. The first waiter
// of a queue is its head. The head takes by its call's function: for itself, and for the
// waiters right behind it if one take can serve them. All others sleep. The package
// starts no goroutine and sends no request of its own.
//
// A waiter is queued, then the head, then decided or removed:
//
//	queued ───► head ───► decided    the answer is set, the waiter is in no queue
//	   │ │        │          ▲
//	   │ └────────┼──────────┘       the head's take included the waiter
//	   └──────────┴─────► removed    the context ended, or an error came back
//
// Waiters of one queue are decided in the order of their arrival. Queues of several
// processes have no common order; contest.go has what makes them share.
//
// Invariants:
//   - A queue with waiters has one head, and only the head's goroutine takes.
//   - A waiter is part of a take or it is not. If its context ends during a take that
//     includes it, the waiter stays until the take has ended. So nothing is charged for
//     a call that did not pass.
//   - A waiter is removed once. Then the first waiter is notified that it is the head.
//   - A call is refused for its deadline only if it surely can't pass in time.
//   - A head of a call with a gate takes only while it has the turn. A turn ends when its
//     holder passes, leaves, or is denied by a key other than the gate's.
//
// queue.go has the queues and their lock, head.go what a caller's goroutine does.
// burst.go has the number of calls per take, contest.go the instant of the next take.
// turns.go decides whose turn it is among the tenants that wait for one shared key: the
// first of places, by its Less.
package wait

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Call is a call that waits. Nothing of it changes before Wait returns.
type Call struct {
	Key      string           // of the queue
	Policies []backend.Policy // at least one; never written
	Shards   int              // of the key; below 2: it is not spread
	Costs    []int64          // units per policy, valid for them; nil: one of each
	Take     Take
	// Single reports that the take serves only this call.
	Single bool
	// Cancels reports that the take cancels what it may have charged. So it is repeated
	// after ErrPerhapsCounted.
	Cancels bool

	// Gate is that of the shared key of a call for several keys, which is Single; nil: the
	// call has one key. Weight is at least 1, the share of the call's queue in the turns.
	// ByGate reports, after a denial, whether the shared key denied the call.
	Gate   *Gate
	Weight float64
	ByGate func() bool
}

// Take decides n calls as one, all or nothing. It writes the decision and the state of
// each policy, both zero before. A shadow is charged the first of the calls that it has room
// for. It runs on the goroutine of its own call, one at a time.
type Take func(ctx context.Context, n int64, d *backend.Decision, states []backend.State) error

// Answer is the decision of a call, the state of each policy, and the error.
type Answer struct {
	Decision backend.Decision
	States   []backend.State // never written afterwards
	Err      error
}

// Outcome is the result of a wait.
type Outcome struct {
	Decision backend.Decision // zero after an error
	States   []backend.State  // one per policy; shared by calls of a take, never written
	Waited   time.Duration    // in the queue and asleep; after an error too
	Behind   int64            // calls of the same take that came after this one
}

// TooLate is the error of a call that surely passes only after its context's deadline:
// the time until it passes, at the earliest. Nothing was counted.
type TooLate time.Duration

// Error names the time.
func (e TooLate) Error() string {
	return fmt.Sprintf("headgate: the call passes in %v at the earliest, after the context's deadline", time.Duration(e))
}

// Wait queues the call and returns when it has passed, by an allowed decision, or with
// an error. Nothing was taken if there is an error, except after ErrPerhapsCounted. The
// call must be one that can pass.
func (qs *Queues) Wait(ctx context.Context, c Call) (Outcome, error) {
	h := head{queues: qs, ctx: ctx}
	h.call, h.since, h.notify = c, time.Now(), make(chan struct{}, 1)
	err := h.wait()
	o := Outcome{Waited: h.waited}
	if err == nil {
		o.Decision, o.States, o.Behind = h.Decision, h.States, h.behind
	}
	return o, err
}
