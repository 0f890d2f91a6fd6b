package memory

import "time"

// clock tells microseconds of the Unix epoch. The default takes the wall
// clock once and counts on from there by the monotonic one.
type clock struct {
	given func() time.Time // Options.Now; nil is the default
	begin time.Time
	epoch int64
	falls bool // it may step back, by more than stamps do
	ticks bool // the processor's counter tells it
	stamps
}

func newClock(given func() time.Time) clock {
	begin := time.Now()
	if given != nil {
		begin = time.UnixMicro(0)
	}
	return clock{given: given, begin: begin, epoch: begin.UnixMicro(), falls: given != nil, ticks: given == nil && ticking()}
}

// steady reports whether the clock never steps back, so that it may be read
// before a lock, and what a record tells was once now. From stamp to stamp it may
// by some microseconds, as two readings may come to a record in another order.
func (c *clock) steady() bool { return !c.falls }

// since reads the clock, in nanoseconds from where it counts on.
func (c *clock) since() time.Duration {
	if s := c.serving.Load(); s != nil {
		if n := ticks() - s.at; n < s.good {
			return s.since + time.Duration(n*s.rate>>32)
		}
	}
	return c.read()
}

func (c *clock) read() time.Duration {
	switch {
	case c.ticks:
		return c.take(c.begin)
	case c.given != nil:
		return c.given().Sub(c.begin)
	}
	return time.Since(c.begin)
}

// micros is of a steady clock, which is never before it began: to divide is
// shorter so.
func (c *clock) micros(ns time.Duration) int64 {
	return c.epoch + int64(uint64(ns)/uint64(time.Microsecond))
}

// draw draws one call in 2^bits by the nanoseconds of its clock: a counter
// would be a cache line that all cores write.
func draw(ns time.Duration, bits int) bool { return uint64(ns)*0x9E3779B97F4A7C15>>(64-bits) == 0 }

// before reads a steady clock, ahead of a lock: it is a quarter of what a
// call takes, a third where it is the system's.
func (s *Store) before() int64 {
	if s.clock.falls {
		return 0
	}
	return s.clock.micros(s.clock.since())
}

// instant returns the instant of a decision, with m locked: one of the
// call's own, and not before that of an earlier decision under the lock, so
// that the order of decisions is that of their instants. With a clock that
// never steps back, the later of the two is both. A given one may: it is read
// here.
func (s *Store) instant(m *guarded, before int64) int64 {
	if s.clock.falls {
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
