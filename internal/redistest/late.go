package redistest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Late holds how late bare timers fired. Its methods are safe for concurrent
// use and say what is known up to now.
type Late struct {
	budget time.Duration
	mu     struct {
		sync.Mutex
		pending map[int]bare
		seen    []time.Duration
	}
}

type bare struct {
	due   time.Time
	timer *time.Timer
}

// Lateness starts a timer of the given budget each millisecond until the test
// ends. "Every call ended within its budget" is no claim that a busy machine
// lets anybody keep; "within its budget and what a bare timer of that budget
// was late by, in the same run" is.
func Lateness(t testing.TB, budget time.Duration) *Late {
	l := &Late{budget: budget}
	l.mu.pending = map[int]bare{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		l.run(done)
	}()
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return l
}

func (l *Late) run(done <-chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			l.stop()
			return
		case <-tick.C:
			l.begin(i)
		}
	}
}

// begin starts the timer under the lock, for it may fire before it is noted.
func (l *Late) begin(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	timer := time.AfterFunc(l.budget, func() { l.end(i) })
	l.mu.pending[i] = bare{time.Now().Add(l.budget), timer}
}

func (l *Late) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.mu.pending {
		b.timer.Stop()
	}
}

func (l *Late) end(i int) {
	now := time.Now() // before the lock, whose wait is our own
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.seen = append(l.mu.seen, now.Sub(l.mu.pending[i].due))
	delete(l.mu.pending, i)
}

// Max is the worst lateness, zero before the first timer.
func (l *Late) Max() time.Duration {
	all := l.all()
	if len(all) == 0 {
		return 0
	}
	return max(slices.Max(all), 0)
}

// P99 is what 99 of 100 timers stayed within.
func (l *Late) P99() time.Duration {
	all := l.all()
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return max(all[(len(all)-1)*99/100], 0)
}

// all includes timers that are overdue: after a stall of the whole process the
// test may well ask before they have had their turn.
func (l *Late) all() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, all := time.Now(), slices.Clone(l.mu.seen)
	for _, b := range l.mu.pending {
		if now.After(b.due) {
			all = append(all, now.Sub(b.due))
		}
	}
	return all
}
