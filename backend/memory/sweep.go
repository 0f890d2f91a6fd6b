package memory

import (
	"math"
	"math/rand/v2"
)

// An idle record leaves while others call, without a goroutine: some calls
// sweep, which is to look at a few records. A sweep removes a record
// that it finds idle for the second time. Until then the record stays for its
// key's next call. A bucket that refills in 10 ms would else be a new record at
// each call. n calls look at about n/4 records, so that a key which is called as
// often as others keeps its record.
//
// Where room is needed an idle record is removed when it is first found. No search
// is made in a stripe of which the records are known to be in use until later.
const (
	sweepEvery = 64 // calls of a stripe
	sweepLooks = 8  // records: in the stripe, in the next ones and in the overflow

	// searchLooks bounds the records of other stripes that a call searches for an
	// idle one. So no call goes over all of a large store. A small store is
	// searched whole, so that room in it is found at once.
	searchLooks = 1 << 14
)

// tick sweeps once in a while. It is called once per call, with st locked. It
// waits for no other stripe. A record leaves a stripe that is in use as others
// sweep it later, or as its own calls do.
func (s *Store) tick(st *stripe, now int64) {
	st.mu.calls++
	if st.mu.calls%sweepEvery != 0 {
		return
	}
	removed := st.sweep(now, sweepLooks)
	other := &s.stripes[s.next.Add(1)%uint32(len(s.stripes))] // so that a stripe without calls is swept too
	if other.mu.TryLock() {
		removed += other.sweep(now, sweepLooks)
		other.mu.Unlock()
	}
	s.removed(removed)
	if s.overflow.mu.TryLock() {
		//mutant:overflow-swept
		s.overflow.sweep(now, sweepLooks)
		s.overflow.mu.Unlock()
	}
}

// removed counts n records less, which were removed or never made.
func (s *Store) removed(n int) {
	if n > 0 {
		s.kept.Add(int64(-n))
	}
}

// reserve counts one more record of a class, with st locked. Where the store is full, or the
// class may keep no more, it removes an idle one. That is of the same stripe, or of others that
// no call holds. It reports whether there is room.
func (s *Store) reserve(st *stripe, now int64, of *class) bool {
	if kept := s.kept.Add(1); kept <= s.maxKeys && s.classes.keep(of, s.maxKeys-kept) {
		return true
	}
	//mutant:room-counted-once
	s.kept.Add(-1)
	removed, _ := st.removeIdle(now)
	//mutant:search-bounded
	for i, left := 0, searchLooks; !removed && i < len(s.stripes) && left > 0; i++ {
		other := &s.stripes[i]
		if other != st && other.idleFrom.Load() <= now && other.mu.TryLock() {
			var looks int
			removed, looks = other.removeIdle(now)
			other.mu.Unlock()
			left -= looks
		}
	}
	if !removed {
		return false
	}
	if s.classes.keep(of, s.maxKeys-s.kept.Load()) {
		return true // the new one counts in its place
	}
	s.removed(1)
	return false
}

// unreserve gives back what was reserved for a record that was not made.
func (s *Store) unreserve(of *class) {
	of.kept.Add(-1)
	s.removed(1)
}

// sweep looks at a few records, from a random one on, and removes those that are
// idle for the second time. It looks at as many leases. (In the order of the slots the idle
// records would all be ahead of the sweep, and searches for them long.)
//
// A removal may shrink the table, which ends the sweep: the slots have moved.
func (st *stripe) sweep(now int64, looks int) (removed int) {
	st.mu.leases.sweep(now, looks)
	t := &st.mu.records
	n := len(t.slots)
	i := rand.IntN(max(n, 1))
	for visits := n; visits > 0 && looks > 0 && len(t.slots) == n; visits-- {
		if s := &t.slots[i]; s.hash != 0 {
			looks--
			//mutant:sweep-looks-twice
			if s.until == 0 {
				st.remove(i) // another may take its place
				removed++
				continue
			}
			if s.until <= now {
				s.until = 0
			}
		}
		i = t.after(i)
	}
	return removed
}

// removeIdle removes an idle record, if there is one, and returns at how many records
// it looked. Where none is idle it notes until when none will be.
func (st *stripe) removeIdle(now int64) (removed bool, looks int) {
	if st.idleFrom.Load() > now {
		return false, 0
	}
	from, t := int64(math.MaxInt64), &st.mu.records
	i := rand.IntN(max(len(t.slots), 1))
	for range t.slots {
		if s := &t.slots[i]; s.hash != 0 {
			looks++
			if s.until <= now {
				st.remove(i)
				return true, looks
			}
			from = min(from, s.until)
		}
		i = t.after(i)
	}
	st.idleFrom.Store(from)
	return false, looks
}
