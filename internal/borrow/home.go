package borrow

import (
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// A home is the units of one key and list of policies that this process holds. Its states:
//
//	        a Borrow lends            few are left, or half of the term is over
//	idle ──────────────► lent ─┬──► lent again, by the next Borrow
//	 ▲  ▲                 │    └──► scarce: no loan follows this one
//	 │  └──── term ends ──┤               │
//	 │                    │ a Borrow of 0 │ units gives back what is left
//	 └────────────────────┴───────────────┘
//
//   - idle: no loan, or one that has ended. Calls go to the store. A home that no call has
//     used for a term is removed.
//   - lent: the clock is before end, and calls take from left.
//   - scarce (own.scarce): the key had little room at the last Borrow, or its window closes.
//     Calls use up what is left, or it goes back before the term ends.
//   - in doubt (own.doubt), beside any of these: the reply of a Borrow was lost, so the store
//     holds the loan of that Borrow or of one before it. The next Borrow names all of
//     own.held. From own.until on the store has charged them whole, and none is named.
//   - closing (Shared.Closing), beside any of these: no Borrow lends any more, and what is held
//     is given back.
//
// busy is a lock. The goroutine that has it sends the one Borrow that may be under way. It is a call
// in place of its Take, renew, the timer, or the store's Close. Calls take from left meanwhile, and
// those that find too few units wait: wait.go.
//
// A Reset ends the loan from outside: it makes end another number below 0. lent sees the
// change, and settles the units that its Borrow has brought as unused.
//
//	field                   is written by                             is read by
//	key, list, term, id   homes.seen, before the home is found      all
//	next                    homes, under the stripe's lock            homes, under that lock
//	due                     the schedule, under its lock              the schedule, under that lock
//	left                    calls, which take and put back; the one   all
//	                        that has busy, which adds and reads
//	end                     the one that has busy; forget, at a Reset all
//	low, need, seen         the one that has busy                     all
//	try                     the one that has busy; asked, which ends  all
//	                        a pause
//	miss, waits             calls                                     the one that has busy
//	resets                  forget                                    forget
//	own                     the one that has busy                     the same
//
// Invariants:
//   - One Borrow of a home is under way at most, and own is of the goroutine that set busy.
//   - left ≤ own.given, and the units that calls have used are the difference.
//   - A unit is used only if the clock, read after the unit was taken, is before end, and the
//     turn of left is the one in which it was taken.
//   - end is extended only after left has lost the units that the new loan lacks, and left
//     gets those that it adds only after end was extended.
//   - The store holds at most one loan of own.held.

// home is the units of one key and list that this process holds. Its states stand above.
type home struct {
	of   backend.Group // of the call that made it; calls by lists that decide the same are answered too
	next *home         // of the same key and another list; guarded by the stripe's lock
	term time.Duration // of a loan
	id   backend.LeaseID

	left   stock        // units
	end    atomic.Int64 // of the loan, as now; 0 or less: none. Each Reset makes it another number below 0
	low    atomic.Int64 // at so few units more are borrowed
	try    atomic.Int64 // no Borrow is sent before, as now
	need   atomic.Int64 // or the key has room for so many units
	miss   atomic.Int64 // units of calls that went to the store
	waits  atomic.Int64 // units of calls that wait for busy
	resets atomic.Int64
	busy   lock // a Borrow is under way
	seen   atomic.Pointer[snapshot]

	own   own
	due   time.Duration // guarded by the schedule's lock
	store *Store
}

// own belongs to the goroutine that set busy.
type own struct {
	seq    uint32
	given  int64         // units that came, less those that were given back: used = given - left
	held   []lending     // loans of which the store has one at most
	sub    string        // of a spread key: the sub-key that lent them
	until  time.Duration // when all of held have ended, as now
	holds  int64         // units of the last loan
	scarce bool          // the key has little room: no loan follows this one, but for calls that wait
	doubt  bool          // a reply was lost since the last one
	told   int64         // used units that are counted in the statistics
	last   time.Duration
	sum    int64   // of used and missed units at last
	rate   float64 // units per term
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
	ends   time.Duration // when the loan ended, counted from the Borrow
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
// loan if few are left.
func (h *home) admits(turn uint64) bool {
	//mutant:clock-after-unit
	at := int64(h.store.now()) // after the unit was taken
	//mutant:ended-loan-admits
	if at >= h.end.Load() {
		return false
	}
	//mutant:unit-of-this-turn
	if h.left.turn() != turn {
		return false
	}
	if h.left.Load() <= h.low.Load() && at >= h.try.Load() && h.busy.tryLock() {
		go h.renew()
	}
	return true
}

// answer writes the decision of a call that took units at home. Its numbers are those of the
// last Borrow. A shadow has room for the first units of a loan, as many as were lent of it.
func (h *home) answer(g *backend.Group, d *backend.Decision, n, left int64) {
	s := h.seen.Load()
	copy(g.Each, s.states)
	for i := range min(len(s.least), len(g.Each)) {
		//mutant:shadow-passes-its-units
		if left < s.least[i] {
			g.Each[i].RetryAfter = s.ends
		}
	}
	*d = backend.Decision{Allowed: true, Source: backend.FromLoan, State: s.states[s.binds], Passed: g.Run}
}

// missed counts a call that goes to the store, and reports whether a Borrow may be sent.
func (h *home) missed(n int64) bool {
	h.miss.Add(n)
	return int64(h.store.now()) >= h.try.Load()
}

// demand returns the units that calls use in one term, by the last few terms. If they
// have used more since, it returns those.
func (h *home) demand(at time.Duration) float64 {
	o := &h.own
	sum := o.given - h.left.Load() + h.miss.Load()
	more, since := float64(sum-o.sum), at-o.last
	if since < h.term/8 { // a moment says little
		return max(o.rate, more)
	}
	weight := min(1, float64(since)/float64(h.term))
	o.rate += weight * (more*float64(h.term)/float64(since) - o.rate)
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
