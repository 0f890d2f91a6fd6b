package batch

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// epoch is what now counts from.
var epoch = time.Now()

// now is the time on the monotonic clock: reading that one alone costs half of
// what time.Now does.
func now() time.Duration { return time.Since(epoch) }

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself: a caller that gets it at the end of the budget is late.
const reserve = 5 * time.Millisecond

// Deadline returns when a round trip has to be over whose first call began then.
func Deadline(begin, budget time.Duration) time.Duration {
	return begin + budget - min(budget/20, reserve)
}

// deadline is the context of a round trip. It ends when the round trip does at its
// deadline, and needs no timer of its own.
type deadline struct {
	context.Context
	at   time.Duration // as now
	done chan struct{}
}

func newDeadline(at time.Duration) *deadline {
	return &deadline{context.Background(), at, make(chan struct{})}
}

func (d *deadline) Deadline() (time.Time, bool) { return epoch.Add(d.at), true }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Within returns f's answer, or ctx's error when that ends first: a client may
// block for longer than any context.
func Within(ctx context.Context, f func(context.Context) ([]string, error)) (warnings []string, err error) {
	done := make(chan struct{})
	var w []string
	var e error
	go func() {
		defer close(done)
		e = guarded(func() (err error) {
			w, err = f(ctx)
			return err
		})
	}()
	select {
	case <-done:
		return w, e
	case <-ctx.Done(): // mutant: load-within-budget
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
	}
}

// guarded returns a panic of the client, in a hook of the user's, as an error. A
// hook that ends the goroutine ends nothing else.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil { // mutant: client-panics
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	return f()
}
