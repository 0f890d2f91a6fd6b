package wire

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// deadline is a trip's context: it ends when the trip does. It serves trip
// after trip without being made anew, until one outlives its deadline.
type deadline struct {
	context.Context
	at   atomic.Int64 // as Now
	done chan struct{}
}

// epoch is where Now counts from.
var epoch = time.Now()

// Now is the time on the monotonic clock, for budgets: reading that one alone
// costs half of what time.Now does.
func Now() time.Duration { return time.Since(epoch) }

// At returns an instant as Now would at it.
func At(t time.Time) time.Duration { return t.Sub(epoch) }

func newDeadline() *deadline {
	return &deadline{Context: context.Background(), done: make(chan struct{})}
}

func (p *deadline) until(t time.Duration) { p.at.Store(int64(t)) }

func (p *deadline) end() { close(p.done) }

// Deadline, Done and Err are context.Context's.
func (p *deadline) Deadline() (time.Time, bool) {
	return epoch.Add(time.Duration(p.at.Load())), true
}

func (p *deadline) Done() <-chan struct{} { return p.done }

func (p *deadline) Err() error {
	select {
	case <-p.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (p *deadline) String() string {
	return fmt.Sprintf("until %v", epoch.Add(time.Duration(p.at.Load())))
}
