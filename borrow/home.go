package borrow

import (
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// home is the units of one key and list that this process holds.
//
// Calls use left, end and turn without a lock. All else is of the one that has busy: a
// call that sends a Borrow, or the timer.
type home struct {
	key    homeKey
	list   []backend.Policy
	length time.Duration // of a lease
	id     backend.LeaseID

	left atomic.Int64  // units
	end  atomic.Int64  // of the lease, as now; 0: none
	turn atomic.Uint64 // count of the times that the used units were read
	low  atomic.Int64  // at so few units more are borrowed
	try  atomic.Int64  // no Borrow is sent before, as now
	miss atomic.Int64  // units of calls that went to the store
	busy atomic.Bool   // a Borrow is under way
	seen atomic.Pointer[snapshot]

	own struct { // of the one that has busy
		seq   uint32
		given int64     // units that came, less those that were given back: used = given - left
		held  []lending // leases of which the store has one at most
		told  int64     // used units that are counted in the statistics
		last  time.Duration
		sum   int64   // of used and missed units at last
		rate  float64 // units per length
	}
	due   time.Duration // guarded by the schedule's lock
	store *Store
}

// lending is a Borrow that may have lent, and what was used before it.
type lending struct {
	seq  uint32
	used int64
}

// snapshot is what the store answered last.
type snapshot struct {
	states []backend.State
	binds  int
}

// take takes n units, if the home has them and the lease has not ended. A unit that was
// taken is never put back: it counts as used.
func (h *home) take(n int64) bool {
	turn := h.turn.Load()
	left := h.left.Load()
	for left >= n && !h.left.CompareAndSwap(left, left-n) {
		left = h.left.Load()
	}
	if left < n {
		return false
	}
	at := int64(h.store.now())                       // after the unit was taken; mutant: clock-after-unit
	if at >= h.end.Load() || h.turn.Load() != turn { // mutant: unit-of-this-turn
		return false
	}
	if left-n <= h.low.Load() && at >= h.try.Load() && h.busy.CompareAndSwap(false, true) {
		go h.renew()
	}
	return true
}

// answer writes the decision of a call that took units at home. Its numbers are those of the
// last Borrow.
func (h *home) answer(r *backend.Request, d *backend.Decision, n int64) {
	s := h.seen.Load()
	copy(r.Each, s.states)
	*d = backend.Decision{Allowed: true, Estimated: true, Source: backend.FromLease, State: s.states[s.binds], Granted: n}
}

// missed counts a call that goes to the store, and reports whether a Borrow may be sent.
func (h *home) missed(n int64) bool {
	h.miss.Add(n)
	return int64(h.store.now()) >= h.try.Load()
}

// demand returns the units that calls use in one length, by the last few lengths. If they
// have used more since, it returns those.
func (h *home) demand(at time.Duration) float64 {
	o := &h.own
	sum := o.given - h.left.Load() + h.miss.Load()
	more, since := float64(sum-o.sum), at-o.last
	if since < h.length/8 { // a moment says little
		return max(o.rate, more)
	}
	weight := min(1, float64(since)/float64(h.length))
	o.rate += weight * (more*float64(h.length)/float64(since) - o.rate)
	o.last, o.sum = at, sum
	return o.rate
}

// forget ends what is held, because of a Reset. The store counts none of it any more.
func (h *home) forget() { h.end.Store(0) } // mutant: reset-empties-homes
