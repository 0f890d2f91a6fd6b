package memory

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A record has an owner while its words are read or written, told by two bits
// of its first word: a hit, which holds no lock, or the holder of the stripe's
// lock. The rest of that word is the tag and the key's length, which whoever
// looks for a key knows, so a hit owns a record by one swap, without a look
// before it: with two cores on one key, each look is a trip of the cache line,
// and those are what a call takes.
//
// A hit owns one record, does arithmetic, and gives it back; it waits for
// nothing meanwhile. The holder of the lock owns as many as it decides on. So
// nobody who owns waits for somebody who waits for it. An owner may lose its
// core between the two; whoever waits lets others run then, so it comes back.
const (
	held = 1 << 31 // by a hit
	mine = 1 << 30 // by the stripe's lock
	dead = held | mine

	spins    = 10            // tries on the core, each after twice as long
	longAway = 1<<63 + 12345 // never less than what divides it: see pause
	yields   = 16            // tries after which a hit waits for the lock instead

	farAway = 150 * time.Nanosecond // of a trip of the cache line, with the search before it
	rarely  = 5                     // one trip in 2^rarely is timed
)

// contend owns, for a hit that failed once, the record that has these bits in
// its first word while nobody does. It gives up where the record is dead,
// another key's or the lock's, and where the owner is long away.
//
// Where the line travels for longer than two decisions take, it is better left
// where it is: who fails stays away for 2 or 3 µs, in which the other decides
// on and on, and pays for one trip instead of one a decision. Where the trip is
// short, two that take turns are as fast as one alone, and each wait is lost.
// Which it is changes with where the host puts the processors, so it is
// measured, from the instant that the clock was read.
func (s *Store) contend(word *int64, free int64, read time.Duration) bool {
	if draw(read, rarely) {
		if far := s.clock.since()-read > farAway; far != s.far.Load() {
			s.far.Store(far)
		}
	}
	try := 0
	if s.far.Load() {
		try = spins - 1
	}
	for ; try < yields; try++ {
		if atomic.LoadInt64(word)&^held != free {
			return false
		}
		pause(try)
		if atomic.CompareAndSwapInt64(word, free, free|held) {
			return true
		}
	}
	return false
}

// release gives back what seize owns.
func release(word *int64, free int64) { atomic.StoreInt64(word, free) }

// pause waits for an owner: at first about as long as one needs, later for as
// long as it takes others to run. It divides what was divided, some 5 ns each,
// which is long in coming for few instructions: a core's other thread may be
// the owner.
func pause(try int) {
	if try >= spins {
		runtime.Gosched()
		return
	}
	x := uint64(try) | 1
	for range 1 << try {
		x = longAway / x
	}
	if x == 0 {
		runtime.Gosched() // never, but the compiler has to divide
	}
}

// own owns a record for the holder of the stripe's lock. One that it owns
// already stays so: a group may list a policy twice.
func (m *guarded) own(at place) []int64 {
	w := m.at(at)
	for try := 0; ; try++ {
		v := atomic.LoadInt64(&w[tagWord])
		if v&mine != 0 || v&held == 0 && atomic.CompareAndSwapInt64(&w[tagWord], v, v|mine) {
			return w
		}
		pause(try)
	}
}

// tryOwn is own without waiting.
func tryOwn(w []int64) bool {
	v := atomic.LoadInt64(&w[tagWord])
	return v&dead == 0 && atomic.CompareAndSwapInt64(&w[tagWord], v, v|mine)
}

// disown gives back what own owns.
func disown(w []int64) { atomic.StoreInt64(&w[tagWord], atomic.LoadInt64(&w[tagWord])&^mine) }
