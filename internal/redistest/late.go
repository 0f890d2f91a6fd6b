package redistest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Late measures how late timers fire. Its methods are safe for concurrent use.
type Late struct {
	budget  time.Duration
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		begun int
		due   map[int]time.Time // of the waits that run
		worst time.Duration     // of the waits that have ended
	}
}

// perTick is the number of waits that begin each millisecond. They are about as
// many as the calls of a test, since the worst of more samples is worse. They
// are too few to be a load.
const perTick = 4

// Lateness begins waits of the given budget each millisecond until the test
// ends. No store can end every call within its budget on a busy machine. It can
// end each within the budget and the lateness of a bare wait in the same run.
func Lateness(t testing.TB, budget time.Duration) *Late {
	l := &Late{budget: budget}
	l.mu.due = map[int]time.Time{}
	ctx, end := context.WithCancel(context.Background())
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
	t.Cleanup(func() {
		end()
		l.running.Wait()
	})
	return l
}

// begin starts waits. It sets the deadline here since a call's deadline does not
// move either when its goroutine begins late.
func (l *Late) begin(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range perTick {
		due := time.Now().Add(l.budget)
		l.mu.begun++
		l.mu.due[l.mu.begun] = due
		l.running.Add(1)
		go l.wait(ctx, l.mu.begun, due)
	}
}

// wait ends as a call does at its deadline: the goroutine of the context's timer
// wakes another, which then needs a core. A wait that the test ends is early.
func (l *Late) wait(ctx context.Context, i int, due time.Time) {
	defer l.running.Done()
	ctx, end := context.WithDeadline(ctx, due)
	defer end()
	<-ctx.Done()
	l.end(i, time.Now()) // the time before the lock, whose wait is our own
}

func (l *Late) end(i int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.worst = max(l.mu.worst, now.Sub(l.mu.due[i]))
	delete(l.mu.due, i)
}

// Max is the worst lateness, overdue waits included: after a stall of the whole
// process the test may run before they do.
func (l *Late) Max() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, worst := time.Now(), l.mu.worst
	for _, due := range l.mu.due {
		worst = max(worst, now.Sub(due))
	}
	return worst
}
