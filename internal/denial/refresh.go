package denial

import (
	"runtime"
	"time"
)

// due reports whether one caller is to refresh the denial. That is in the last quarter of the
// time for which it holds, where the store denies for longer. So a flood on a spent key
// asks about once per second. Package shard refreshes the denials of spread keys.
func (e *entry) due(now, ttl time.Duration) bool {
	//mutant:due-lasts
	return e.Ends > e.Sent+ttl && e.group.Shards < 2 && now >= e.Sent+ttl*3/4
}

// A flood that is answered from memory never blocks. So the scheduler lets each of its
// goroutines run for 10 ms, and calls that wait for the store meanwhile would be late. While
// there may be such calls, denied ones let other goroutines run after each slice.
const (
	slice = 20 * time.Microsecond
	under = 100 * time.Millisecond // how long after an answer others may be on their way
)

// asking reports whether calls of the entry's key may be on their way to the store.
func (e *entry) asking(now time.Duration) bool {
	//mutant:refresh-yielded-to
	return e.refreshing.Load() ||
		//mutant:late-answers-yielded-to
		now < e.Told+under
}

// yield lets other goroutines run, once per slice. It costs microseconds where a thread
// has to wake for them.
func (s *Store) yield(now time.Duration) {
	last := s.yielded.Load()
	//mutant:yield-per-slice
	if (now-time.Duration(last)).Abs() >= slice && s.yielded.CompareAndSwap(last, int64(now)) {
		runtime.Gosched()
	}
}
