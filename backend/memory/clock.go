package memory

import "time"

// clock tells microseconds of the Unix epoch. The default takes the wall
// clock once and counts on from there by the monotonic one.
type clock struct {
	given func() time.Time // Options.Now; nil is the default
	begin time.Time
	epoch int64
}

func newClock(given func() time.Time) clock {
	begin := time.Now()
	return clock{given, begin, begin.UnixMicro()}
}

// before reads the default clock, ahead of a lock: it is a third of what a
// call takes.
func (s *Store) before() int64 {
	if s.clock.given != nil {
		return 0
	}
	return s.clock.epoch + int64(time.Since(s.clock.begin)/time.Microsecond)
}

// instant returns the instant of a decision, with m locked: one of the
// call's own, and not before that of an earlier decision under the lock, so
// that the order of decisions is that of their instants. With a clock that
// never steps back, the later of the two is both. A given one may: it is read
// here.
func (s *Store) instant(m *guarded, before int64) int64 {
	if s.clock.given != nil {
		return s.given(m)
	}
	m.latest = max(m.latest, before)
	return m.latest
}

// given reads Options.Now, which is the user's and may panic.
func (s *Store) given(m *guarded) (now int64) {
	read := false
	defer func() {
		if !read {
			m.Unlock()
		}
	}()
	now = min(max(s.clock.given().UnixMicro(), 0), 1<<52)
	read = true
	return now
}

// Clock returns Options.Now, nil for the default; see backend.Clock.
func (s *Store) Clock() func() time.Time { return s.clock.given }
