package redistest

import (
	"sync"
	"testing"
	"time"
)

// Late holds how late callers were that did nothing but wait. Its methods are
// safe for concurrent use and say what is known up to now.
type Late struct {
	budget  time.Duration
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		begun int
		due   map[int]time.Time // of those that wait
		worst time.Duration     // of those that have waited
	}
}

// Lateness lets a caller that does nothing else wait for the given budget, one
// more each millisecond, until the test ends. "Every call ended within its
// budget" is no claim that a busy machine lets anybody keep; "within its budget
// and what who merely waited for it was late by, in the same run" is.
//
// Each is woken as a call is whose deadline ends it: by the goroutine of a
// timer, and then needs a core itself. What lost: to take the time on the
// timer's own goroutine. Who waits for an answer comes after that one, and may
// lose the core in between: beside three processes that computed on two cores
// the worst was later by 6 ms in the median of runs, by 30 at most.
func Lateness(t testing.TB, budget time.Duration) *Late {
	l := &Late{budget: budget}
	l.mu.due = map[int]time.Time{}
	done := make(chan struct{})
	l.begin(done) // before any call of the test: whatever holds that up holds this up
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

// begin lets one more wait. When it is due is noted here: a call's deadline
// does not move either where its goroutine begins late.
func (l *Late) begin(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, due := l.mu.begun, time.Now().Add(l.budget)
	l.mu.begun++
	l.mu.due[i] = due
	l.running.Add(1)
	go l.wait(i, due, done)
}

func (l *Late) wait(i int, due time.Time, done <-chan struct{}) {
	defer l.running.Done()
	answered := make(chan struct{}, 1)
	timer := time.AfterFunc(time.Until(due), func() { answered <- struct{}{} })
	select {
	case <-answered:
		l.end(i, time.Now()) // before the lock, whose wait is our own
	case <-done:
		timer.Stop()
	}
}

func (l *Late) end(i int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.worst = max(l.mu.worst, now.Sub(l.mu.due[i]))
	delete(l.mu.due, i)
}

// Max is the worst lateness, that of who is overdue included: after a stall of
// the whole process the test may well ask before they have had their turn.
func (l *Late) Max() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, worst := time.Now(), l.mu.worst
	for _, due := range l.mu.due {
		worst = max(worst, now.Sub(due))
	}
	return worst
}
