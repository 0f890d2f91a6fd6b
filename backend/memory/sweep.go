package memory

// Idle keys leave while others call, with no goroutine and no pause: every so
// many calls look at a few records, in the stripe that is called and in
// another, and drop those that are as new. n calls have looked at n/2 records.
// They lie in a row, so that looking at 8 costs little more than at one.
const (
	every = 32
	some  = 8
)

// tick is called once a call, with st locked.
func (st *stripe) tick(s *Store, now int64) {
	st.mu.calls++
	if st.mu.calls%every == 0 {
		st.sweep(s, now, some)
		s.sweepAnother(now)
	} else if s.kept.Load() >= s.most {
		st.sweep(s, now, 1)
	}
}

// sweepAnother sweeps the next stripe in turn, where nobody is in it: keys
// leave though nobody calls in their own.
func (s *Store) sweepAnother(now int64) {
	st := &s.stripes[s.hand.Add(1)%uint32(len(s.stripes))]
	if st.mu.TryLock() {
		st.sweep(s, now, some)
		st.mu.Unlock()
	}
}

// sweep looks at the next n records in turn and drops the idle.
func (st *stripe) sweep(s *Store, now int64, n int) {
	m := &st.mu
	for turns := 0; n > 0 && turns <= len(m.segs) && m.index.count > 0; {
		if m.hand.seg >= len(m.segs) || m.hand.off >= m.segs[m.hand.seg].used {
			m.turn()
			turns++
			continue
		}
		at := place(m.hand.seg<<segBits | m.hand.off)
		w := m.at(at)
		m.hand.off += m.size(w)
		if w[untilWord] == dead {
			continue
		}
		if n--; resetAt(w[untilWord]) <= now {
			m.drop(at)
			s.kept.Add(-1)
		}
	}
}

// turn takes the sweep to the next segment, and empties the one that it has
// passed where half of it is dead.
func (m *guarded) turn() {
	if i := m.hand.seg; i < len(m.segs) && i != m.last && m.segs[i].dead*2 > m.segs[i].used {
		m.empty(i)
	}
	m.hand.off = 0
	if m.hand.seg++; m.hand.seg >= len(m.segs) {
		m.hand.seg = 0
	}
}
