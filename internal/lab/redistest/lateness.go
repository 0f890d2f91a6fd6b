package redistest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// Late measures how late timers fire.
type Late struct {
	budget  time.Duration
	end     context.CancelFunc
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		ended []time.Duration // how late each wait was
	}
}

// perTick is the number of waits that begin each millisecond. They are about as
// many as the calls of a test, since the worst of more samples is worse. They
// are too few to be a load.
const perTick = 4

// Lateness begins waits of the given budget each millisecond until Max is called or
// the test ends. No store can end every call within its budget on a busy machine. It
// can end each within the budget and the lateness of a bare wait in the same run.
func Lateness(t testing.TB, budget time.Duration) *Late {
	ctx, end := context.WithCancel(context.Background())
	l := &Late{budget: budget, end: end}
	l.begin(ctx) // before any call of the test, so that it meets the same stalls
	l.running.Add(1)
	go func() {
		defer l.running.Done()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			l.begin(ctx)
		}
	}()
	t.Cleanup(func() { l.Max() })
	return l
}

// begin starts waits. It sets the deadline here since a call's deadline does not
// move either when its goroutine begins late.
func (l *Late) begin(ctx context.Context) {
	due := time.Now().Add(l.budget)
	for range perTick {
		l.running.Add(1)
		go l.wait(ctx, due)
	}
}

// Wait is one more wait, for a test of so many callers that some must be timers. The
// worst of 100,000 calls can't be compared with the worst of 2,000 waits.
func (l *Late) Wait() {
	l.running.Add(1)
	l.wait(context.Background(), time.Now().Add(l.budget))
}

// wait ends as a call does at its deadline: the goroutine of the context's timer
// wakes another, which then needs a core. A wait that Max ends is early.
func (l *Late) wait(ctx context.Context, due time.Time) {
	defer l.running.Done()
	ctx, end := context.WithDeadline(ctx, due)
	defer end()
	<-ctx.Done()
	late := time.Since(due) // before the lock, whose wait is our own
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.ended = append(l.mu.ended, late)
}

// Max ends all waits and returns the worst lateness. Overdue waits count: after a
// stall of the whole process the test may run before they do.
func (l *Late) Max() time.Duration {
	l.end()
	l.running.Wait()
	return max(0, slices.Max(l.mu.ended))
}

// Within is the time in which a call ends whose budget is that of the waits: the budget and
// Max. A process that is late by itself has one budget more.
func (l *Late) Within() time.Duration {
	late := l.Max()
	if late > l.budget/20 {
		return 2*l.budget + late
	}
	return l.budget + late
}
