package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// stamp is how the processor's counter tells the time: what it and the system's
// clock said at one instant, and how fast it goes. It serves for a millisecond.
type stamp struct {
	at    uint64 // ticks
	since time.Duration
	rate  uint64 // ns a tick, in 2^-32; 0: unknown
	good  uint64 // ticks for which it serves
}

const (
	serves  = time.Millisecond
	alike   = 512  // rates differ by less than one in so many
	glanced = 1024 // in less than one in so many of what it serves
	often   = 16   // times what it serves, within which it is asked for another
)

// stamps are the stamps of a clock: to read the system's takes 23 ns of a hit,
// by a stamp 10. Who finds one too old takes another.
//
// Nothing that is unsure is relied on: a stamp serves where the counter has gone
// alike since the two before it, and was taken at a glance. A core that is lost
// between clock and counter would shift them. So it is right to some microseconds,
// mostly to less than one. Where a counter steps ahead all the same, or differs
// from core to core, an instant is wrong by less than a millisecond.
type stamps struct {
	serving atomic.Pointer[stamp] // nil: none
	mu      sync.Mutex
	last    stamp
}

// take tells the time by the system's clock and takes another stamp, unless
// somebody does.
func (s *stamps) take(begin time.Time) time.Duration {
	before := ticks()
	since := time.Since(begin)
	took := ticks() - before
	if s.mu.TryLock() {
		s.follow(before+took/2, took, since)
		s.mu.Unlock()
	}
	return since
}

// follow follows the last stamp by another. It allocates one only where it
// serves, and not for who asks 60 times a second or less.
func (s *stamps) follow(at, took uint64, since time.Duration) {
	n, ns, was := at-s.last.at, since-s.last.since, s.last.rate
	if ns < serves || took > n/uint64(ns/serves)/glanced {
		return
	}
	s.last = stamp{at: at, since: since, rate: ratio(ns, n)}
	if rate := s.last.rate; rate == 0 || max(rate, was)-min(rate, was) > was/alike || ns > often*serves {
		s.serving.Store(nil)
		return
	}
	s.last.good = uint64(serves) << 32 / s.last.rate
	next := s.last
	s.serving.Store(&next)
}

// ratio is ns / ticks in 2^-32, 0 where that is no rate of a counter.
func ratio(ns time.Duration, ticks uint64) uint64 {
	hi, lo := bits.Mul64(uint64(ns), 1<<32)
	if hi >= ticks {
		return 0
	}
	rate, _ := bits.Div64(hi, lo, ticks)
	return rate
}
