// Package starved tells whether this process finds no free processor.
package starved

import (
	"sync/atomic"
	"time"
)

// sample is how long a sample lasts.
const sample = 100 * time.Millisecond

var epoch = time.Now()

// In the last sample the threads of this process waited for a processor for half of the time or
// longer.
var starved struct {
	until  atomic.Int64 // since epoch; then another sample is taken
	begun  atomic.Int64 // when this one was, likewise
	waited atomic.Int64 // for how long they had waited then
	is     atomic.Bool
}

// Host reports whether this host has no free processor, in the last sample. It is asked
// before a call is refused for an open circuit. A caller that is refused at once calls again at
// once, or does the work that the call lets pass. On such a host that would keep the processors
// from a server and from its probe for as long as the load lasts. So it waits for its budget there.
func Host() bool {
	s, now := &starved, time.Since(epoch)
	if until := s.until.Load(); int64(now) >= until && s.until.CompareAndSwap(until, int64(now+sample)) {
		waited := waitedForProcessor()
		took, more := now-time.Duration(s.begun.Swap(int64(now))), waited-time.Duration(s.waited.Swap(int64(waited)))
		//mutant:half-of-the-time-starved
		s.is.Store(took < 2*sample && 2*more >= took)
	}
	return s.is.Load()
}

// Pretend makes Host report is, until undo is called. It is for tests.
func Pretend(is bool) (undo func()) {
	starved.until.Store(1<<63 - 1)
	starved.is.Store(is)
	return func() { starved.until.Store(0) }
}
