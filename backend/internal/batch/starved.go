package batch

import (
	"sync/atomic"
	"time"
)

// starved is whether this host has no free processor. In the last sample the threads of this process
// waited for one for half of the time or longer.
var starved struct {
	until  atomic.Int64 // as now; then another sample is taken
	begun  atomic.Int64 // when this one was, as now
	waited atomic.Int64 // for how long they had waited then
	is     atomic.Bool
}

// sample is how long a sample lasts.
const sample = 100 * time.Millisecond

// hostStarved reports whether this host has no free processor. It is asked before a call is refused
// for an open circuit. A caller that is refused at once calls again at once, or does the work that
// the call lets pass. On such a host that would keep the processors from a server and from its
// probe for as long as the load lasts. So it waits for its budget there.
func hostStarved() bool {
	s, at := &starved, now()
	if until := s.until.Load(); int64(at) >= until && s.until.CompareAndSwap(until, int64(at+sample)) {
		waited := waitedForProcessor()
		took, more := at-time.Duration(s.begun.Swap(int64(at))), waited-time.Duration(s.waited.Swap(int64(waited)))
		//mutant:half-of-the-time-starved
		s.is.Store(took < 2*sample && 2*more >= took)
	}
	return s.is.Load()
}
