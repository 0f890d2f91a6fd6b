package adapter

import (
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/topkeys"
)

// Keys are those of the calls that limiters on one store decide.
type Keys struct {
	Denied *topkeys.Sketch // of denied calls
	Near   *topkeys.Sketch // of calls that pass near a limit, by limiters that count their calls
}

// NewKeys returns the keys of a store. They take no memory before the first.
func NewKeys() *Keys { return &Keys{topkeys.New(), topkeys.New()} }

// Calls counts what became of a limiter's calls, for the live page. The zero Calls counts nothing:
// then a call that passes costs one load.
type Calls struct {
	counts atomic.Pointer[counts]
	own    atomic.Bool
}

type counts struct {
	passed, undecided atomic.Int64
	denied            []atomic.Int64 // by each policy
}

// Totals are the counts of a limiter since they began.
type Totals struct {
	Passed    int64
	Denied    []int64 // by each policy: that of the one that binds
	Undecided int64   // calls that no store decided, whatever their failure mode was
}

// Begin makes the limiter count its calls from now on.
func (l *Limiter) Begin() {
	if l.counts.Load() == nil {
		l.counts.CompareAndSwap(nil, &counts{denied: make([]atomic.Int64, len(l.Policies))})
	}
}

// Own makes the limiter leave Keys to the adapter, to which a denial is something else.
func (l *Limiter) Own() { l.own.Store(true) }

// Counts reports whether calls that pass are counted.
func (c *Calls) Counts() bool { return c.counts.Load() != nil }

// Totals returns the counts up to now.
func (c *Calls) Totals() (t Totals) {
	n := c.counts.Load()
	if n == nil {
		return t
	}
	t.Passed, t.Undecided = n.passed.Load(), n.undecided.Load()
	for i := range n.denied {
		t.Denied = append(t.Denied, n.denied[i].Load())
	}
	return t
}

// Count counts the limiter's decision of a call. share is that of a limit from which on a call is
// near it.
func (l *Limiter) Count(key string, d *backend.Decision, share float64) {
	n := l.counts.Load()
	switch {
	case d.Source == backend.FromNone:
	case d.Source == backend.FromFailOpen || d.Source == backend.FromFailClosed || d.Source == backend.FromFailLocal:
		if n != nil {
			n.undecided.Add(1)
		}
	case !d.Allowed:
		//mutant:adapter-counts-its-denials
		if !l.own.Load() {
			l.Keys.Denied.Add(key, uint64(d.RetryAfter))
		}
		for i := 0; n != nil && i < len(n.denied); i++ {
			if l.Policies[i].Name == d.Policy {
				n.denied[i].Add(1)
			}
		}
	case n != nil:
		n.passed.Add(1)
		//mutant:near-from-the-share
		if share > 0 && d.Known != backend.NotCounted && float64(d.Used) >= share*float64(d.Limit) {
			l.Keys.Near.Add(key, uint64(d.ResetAfter))
		}
	}
}
