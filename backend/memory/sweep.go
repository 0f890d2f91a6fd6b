package memory

// An idle record leaves while others call, without a goroutine: some calls
// sweep, which is to look at the next few records. A sweep removes a record
// that it finds idle for the second time. Until then the record stays for its
// key's next call: a bucket that refills in 10 ms would else be a new record at
// each call. n calls look at n/2 records, so all that is idle has left after
// eight calls per record.
//
// Where room is needed an idle record is removed when it is first found.
const (
	sweepEvery = 64 // calls of a stripe
	sweepLooks = 16 // records, in the stripe and in the next one
	sweepNew   = 4  // records for each that is inserted: tables end growing

	searchLooks   = 64 // records of a stripe, for one to make room
	searchStripes = 4  // others, where the call's own has none idle
)

// tick sweeps once in a while. It is called once per call, with st locked.
func (s *Store) tick(st *stripe, now int64) {
	st.mu.calls++
	if st.mu.calls%sweepEvery != 0 {
		return
	}
	s.removed(st.sweep(now, sweepLooks))
	s.sweepNext(now, sweepLooks)
	if s.overflow.mu.TryLock() {
		s.overflow.sweep(now, sweepLooks)
		s.overflow.mu.Unlock()
	}
}

// sweepNext sweeps another stripe, each in turn, if nobody holds it: records
// leave a stripe in which nobody calls.
func (s *Store) sweepNext(now int64, looks int) {
	if st := s.nextStripe(); st.mu.TryLock() {
		s.removed(st.sweep(now, looks))
		st.mu.Unlock()
	}
}

func (s *Store) nextStripe() *stripe { return &s.stripes[int(s.next.Add(1))%len(s.stripes)] }

func (s *Store) removed(n int) {
	if n > 0 {
		s.kept.Add(int64(-n))
	}
}

// reserve counts n more records, with st locked. It removes idle records where
// the store is full, and reports whether there is room.
func (s *Store) reserve(st *stripe, n int, now int64) bool {
	if s.count(n) {
		return true
	}
	if int64(n) > s.maxKeys {
		return false
	}
	s.removed(st.search(now, n))
	for range min(searchStripes, len(s.stripes)-1) {
		if s.count(n) {
			return true
		}
		if other := s.nextStripe(); other != st && other.mu.TryLock() {
			s.removed(other.search(now, n))
			other.mu.Unlock()
		}
	}
	return s.count(n)
}

func (s *Store) count(n int) bool {
	if s.kept.Add(int64(n)) <= s.maxKeys {
		return true
	}
	s.kept.Add(int64(-n))
	return false
}

// sweep looks at the next records and removes those that are idle for the
// second time.
func (st *stripe) sweep(now int64, looks int) (removed int) {
	st.visit(looks, func(r record) (remove, done bool) {
		remove = r.idle(now) && r.markIdle()
		if remove {
			removed++
		}
		return remove, false
	})
	return removed
}

// search looks at the next records and removes up to n that are idle.
func (st *stripe) search(now int64, n int) (removed int) {
	find := func(r record) (remove, done bool) {
		if r.idle(now) {
			removed++
			return true, removed == n
		}
		return false, false
	}
	st.visit(searchLooks, find)
	if removed < n {
		st.visit(searchLooks, find) // from the first one on, where that was the last
	}
	return removed
}

// visit shows f the next records in turn, at most looks of them, and removes
// those that f says. It ends behind the stripe's last record, so that no record
// is shown twice.
func (st *stripe) visit(looks int, f func(record) (remove, done bool)) {
	hand := &st.mu.hand
	for done := false; looks > 0 && !done && hand.table < len(st.mu.tables); {
		t := st.mu.tables[hand.table]
		if t == nil || hand.visited >= t.slots() {
			hand.table, hand.visited = hand.table+1, 0
			continue
		}
		slot := t.visited(hand.visited)
		hand.visited++
		if t.control(slot) < inUse {
			continue
		}
		looks--
		var remove bool
		if remove, done = f(t.at(slot)); remove {
			st.remove(t, slot)
		}
	}
	if hand.table == len(st.mu.tables) {
		hand.table = 0
	}
}
