package memory

import "sync/atomic"

// Idle keys leave while others call, with no goroutine: one in so many calls
// looks at a few records, and drops those that are as new; where a third of a
// table is left, it moves that to a smaller one. n calls have looked at n/2
// records, or n/16 where they are hits and find none that is. Eight of them lie in
// a row, so that looking at 16 costs little more than at two. Hits look at the
// stripes in turn, in which nobody may call; who holds a lock looks there too.
//
// Where the last look found none idle, hits look an eighth as often: each record
// that is looked at is one that nobody has asked for, and far away. On an AMD
// EPYC looking made one of Zipf's calls over a million keys 20 to 37 ns longer.
const (
	everyBits  = 6
	every      = 1 << everyBits
	seldomBits = everyBits + 3
	some       = 16
	further    = 4 // stripes, where they hold fewer
)

// tick is called once a call under the lock.
func (st *stripe) tick(s *Store, now int64) {
	st.mu.calls++
	if st.mu.calls%every == 0 {
		st.sweep(s, now, some)
		s.sweepAnother(now, some)
	} else if s.kept.Load() >= s.most {
		st.sweep(s, now, 1)
	}
}

// sweepAnother sweeps the next stripes in turn, where nobody is in them: keys
// leave though nobody calls in their own.
func (s *Store) sweepAnother(now int64, n int) {
	left, found := n, false
	for i := 0; left > 0 && i < further; i++ {
		st := &s.stripes[s.hand.Add(1)%stripes]
		if st.mu.TryLock() {
			var idle bool
			left, idle = st.sweep(s, now, left)
			st.mu.Unlock()
			found = found || idle
		}
	}
	if left < n { // else nothing was looked at
		s.idle.Store(found)
	}
}

// sweep looks at the next n records in turn and drops the idle. It returns
// how many of the n are left, and whether there was one.
func (st *stripe) sweep(s *Store, now int64, n int) (left int, found bool) {
	m, many := &st.mu, n > 1
	for turns := 0; n > 0 && turns <= len(m.tables) && m.tabled > 0; {
		t, cell := m.tables[m.hand.table].Load(), m.hand.cell
		if t == nil || cell >= t.cells() {
			if many {
				m.trim(t)
			}
			m.hand.table, m.hand.cell = (m.hand.table+1)%len(m.tables), 0
			turns++
			continue
		}
		m.hand.cell++
		if cell = t.visited(cell); t.mark(cell) < lowest {
			continue
		}
		if n--; idle(t.at(cell), now) {
			m.drop(t, cell)
			s.kept.Add(-1)
			found = true
		}
	}
	return n, found
}

// idle reports whether a record is as new, and owns it then. One that has an
// owner is not: it is being called.
func idle(w []int64, now int64) bool {
	if resetAt(atomic.LoadInt64(&w[untilWord])) > now || !tryOwn(w) {
		return false
	}
	if resetAt(w[untilWord]) > now { // a hit came between
		disown(w)
		return false
	}
	return true
}

// trim drops a table in which room was made for records that did not come. Not
// for each call: in a store that is full each makes room anew.
func (m *guarded) trim(t *table) {
	if t != nil && t.live == 0 {
		m.replace(t.size, nil)
	}
}
