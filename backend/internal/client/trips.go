package client

import (
	"sync/atomic"
	"time"
)

// Trips is the time of a server's last round trips, from the write to the reply. The
// shortest one counts, since any other may be late for a reason of its own. Round trips
// that were under way together count as one: a single stall makes all of them late.
type Trips struct {
	trips [4]atomic.Int64
	next  atomic.Uint32
	added atomic.Int64 // when the last one was answered
}

// Add adds a round trip that was written at one instant and answered at another. The
// instants are of one clock, which the caller chooses.
func (t *Trips) Add(written, answered time.Duration) {
	took, last := max(int64(answered-written), 1), t.added.Load()
	//mutant:one-stall-counts-once
	if int64(written) >= last && t.added.CompareAndSwap(last, int64(answered)) {
		t.trips[t.next.Add(1)%uint32(len(t.trips))].Store(took)
	} else if t := &t.trips[t.next.Load()%uint32(len(t.trips))]; took < t.Load() {
		t.Store(took)
	}
}

// Added returns when the last one was answered.
func (t *Trips) Added() time.Duration { return time.Duration(t.added.Load()) }

// Shortest returns the shortest, 0 where there was none.
func (t *Trips) Shortest() (shortest time.Duration) {
	for i := range t.trips {
		if t := time.Duration(t.trips[i].Load()); t > 0 && (t < shortest || shortest == 0) {
			shortest = t
		}
	}
	return shortest
}
