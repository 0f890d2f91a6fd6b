package redistest

import (
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
//
// Each wait ends as a call does at its deadline: a timer's goroutine wakes
// another, which then needs a core.
func Lateness(t testing.TB, budget time.Duration) *Late {
	l := &Late{budget: budget}
	l.mu.due = map[int]time.Time{}
	done := make(chan struct{})
	l.begin(done) // before any call of the test, so that it meets the same stalls
	l.running.Add(1)
	go l.run(done)
	t.Cleanup(func() {
		close(done)
		l.running.Wait()
	})
	return l
}

func (l *Late) run(done <-chan struct{}) {
	defer l.running.Done()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			l.begin(done)
		}
	}
}

// begin starts waits. It sets the deadline here since a call's deadline does not
// move either when its goroutine begins late.
func (l *Late) begin(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range perTick {
		due := time.Now().Add(l.budget)
		l.mu.begun++
		l.mu.due[l.mu.begun] = due
		l.running.Add(1)
		go l.wait(l.mu.begun, due, done)
	}
}

// wait has two goroutines, the timer's and its own, as a call in a batch has.
func (l *Late) wait(i int, due time.Time, done <-chan struct{}) {
	defer l.running.Done()
	fired := make(chan struct{}, 1)
	timer := time.AfterFunc(time.Until(due), func() { fired <- struct{}{} })
	defer timer.Stop()
	select {
	case <-fired:
		l.end(i, time.Now()) // the time before the lock, whose wait is our own
	case <-done:
	}
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
