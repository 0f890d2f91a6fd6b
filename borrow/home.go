package borrow

import (
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// home is the units of one key and list that this process holds.
//
// Calls use left and end without a lock. All else is of the one that has busy: a
// call that sends a Borrow, or the timer.
type home struct {
	key    string
	list   []backend.Policy // of the call that made it; calls by lists that decide the same are answered too
	next   *home            // of the same key and another list; guarded by the stripe's lock
	length time.Duration    // of a lease
	id     backend.LeaseID

	left   stock        // units
	end    atomic.Int64 // of the loan, as now; 0 or less: none. Each Reset makes it another number below 0
	low    atomic.Int64 // at so few units more are borrowed
	try    atomic.Int64 // no Borrow is sent before, as now
	need   atomic.Int64 // or the key has room for so many units
	miss   atomic.Int64 // units of calls that went to the store
	resets atomic.Int64
	busy   atomic.Bool // a Borrow is under way
	seen   atomic.Pointer[snapshot]

	own   own
	due   time.Duration // guarded by the schedule's lock
	store *Store
}

// own is what only the one that has busy uses.
type own struct {
	seq    uint32
	given  int64         // units that came, less those that were given back: used = given - left
	held   []lending     // leases of which the store has one at most
	sub    string        // of a spread key: the sub-key that lent them
	until  time.Duration // when all of held have ended, as now
	holds  int64         // units of the last lease
	scarce bool          // the key has little room: no lease follows this one
	doubt  bool          // a reply was lost since the last one
	told   int64         // used units that are counted in the statistics
	last   time.Duration
	sum    int64   // of used and missed units at last
	rate   float64 // units per length
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
	least  []int64       // of a list with shadows: with fewer units left, a policy has no room
	ends   time.Duration // when the lease ended, counted from the Borrow
}

// take takes n units, if the home has them and the loan has not ended, and returns how many
// are left behind them.
func (h *home) take(n int64) (left int64, ok bool) {
	u, ok := h.left.take(n)
	//mutant:late-units-put-back
	if ok = ok && h.admits(u.turn); !ok && u.left >= 0 {
		h.left.putBack(n, u.turn)
	}
	return u.left, ok
}

// taken is units of a home that a call has.
type taken struct {
	turn uint64 // of the home when they were taken
	left int64  // units behind them
}

// admits reports whether units that were taken in a turn may be used now. It renews the
// lease if few are left.
func (h *home) admits(turn uint64) bool {
	//mutant:clock-after-unit
	at := int64(h.store.now()) // after the unit was taken
	//mutant:ended-lease-admits
	if at >= h.end.Load() {
		return false
	}
	//mutant:unit-of-this-turn
	if h.left.turn() != turn {
		return false
	}
	if h.left.Load() <= h.low.Load() && at >= h.try.Load() && h.busy.CompareAndSwap(false, true) {
		go h.renew()
	}
	return true
}

// answer writes the decision of a call that took units at home. Its numbers are those of the
// last Borrow. A shadow has room for the first units of a lease, as many as were lent of it.
func (h *home) answer(g *backend.Group, d *backend.Decision, n, left int64) {
	s := h.seen.Load()
	copy(g.Each, s.states)
	for i := range min(len(s.least), len(g.Each)) {
		//mutant:shadow-passes-its-units
		if left < s.least[i] {
			g.Each[i].RetryAfter = s.ends
		}
	}
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

// pause lets no Borrow be sent before an instant, or the key has room for so many units.
func (h *home) pause(until time.Duration, need int64) {
	h.need.Store(need)
	h.try.Store(int64(until))
}

// never is room that no key has.
const never = 1<<63 - 1

// asked notes the answer of the store to a call that was not decided here.
func (h *home) asked(at time.Duration, d *backend.Decision) {
	//mutant:room-ends-pause
	if d.Remaining >= h.need.Load() && h.try.Load() > int64(at) {
		h.try.Store(int64(at))
	}
}

// forget ends what is held, because of a Reset, and what a Borrow under way brings. The store
// counts none of it any more, or it is given back unused.
//
//mutant:reset-empties-homes
func (h *home) forget() { h.end.Store(-h.resets.Add(1)) }
