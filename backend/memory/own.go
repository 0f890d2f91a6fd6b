package memory

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A record has an owner while its words are read or written, told by two bits
// of its first word: a hit, which holds no lock, or the holder of the stripe's
// lock. The rest of that word is the tag and the key's length, which whoever
// looks for a key knows, so a hit owns a record by one swap that knows what
// it expects. Where two cores call one key each trip of the cache line is what a
// call takes: a record that is guessed is looked at first (see guess), one that
// somebody owns is not looked at again.
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
	longAway = 1<<63 + 12345 // never less than what divides it: see divide
	yields   = 16            // tries after which a hit waits for the lock instead

	farAway = 90 * time.Nanosecond // of a trip of the cache line, with the search before it
	rarely  = 4                    // one trip in 2^rarely is timed

	brief = 125 * time.Nanosecond // how long a hit stays away from a record that is far, at first
	long  = 10 * time.Microsecond // and at most
	soon  = 4 * farAway           // after the last stay: two who meet by then call on and on
	again = 2                     // the first try after that
)

// contend owns, for a hit that failed once, the record that has these bits in
// its first word while nobody does. It gives up where the record is dead,
// another key's or the lock's, and where the owner is long away.
func (s *Store) contend(m *guarded, word *int64, free int64, read time.Duration) bool {
	try := 0
	if s.timed(read) > farAway {
		s.stay(m, read)
		try = again
	} else {
		pause(try)
	}
	for try++; try < yields; try++ {
		if atomic.CompareAndSwapInt64(word, free, free|held) {
			return true
		}
		if atomic.LoadInt64(word)&^held != free {
			return false
		}
		pause(try)
	}
	return false
}

// timed returns how long a trip of a record's cache line took of late, where
// one failed, with the search before it. That changes with where the host puts
// the processors, so it is measured, from the instant that the clock was read;
// as a mean, since now and then the line is where it is wanted. What lost: to
// go by the last trip, and to call near what is within 150 ns. On a machine of
// 110 to 165 each made the hits go to and fro between both ways of waiting,
// and half as many were decided.
func (s *Store) timed(read time.Duration) time.Duration {
	mean := s.trip.Load()
	if draw(read, rarely) {
		trip := min(max(s.clock.since()-read, 0), 4*farAway) // a core that was lost in between is no trip
		mean += (int64(trip) - mean) / 8
		s.trip.Store(mean)
	}
	return time.Duration(mean)
}

// stay stays away from a record whose line is far, from one that is called on
// and on for twice as long each time: there it is better left where it is. In 10
// µs the other decides some 150 calls, and the line travels to and fro once
// instead of once a decision (of what one core alone decides two then do 95 in
// 100; 84 with 2.5 µs, 98 with 80). Who calls on and on fails as soon as the
// other is back. Callers that do something else for as little as 100 ns between
// two calls seldom do so many times in a row, and each long wait is lost to them:
// with 10 µs wherever two had met within 20, callers with 0.5 µs of work were a
// quarter slower. Where trips are short, two that take turns are as fast as one
// alone, and they stay away from none.
func (s *Store) stay(m *guarded, read time.Duration) {
	d := brief
	if read-time.Duration(m.back.Load()) < soon {
		d = min(max(2*time.Duration(m.away.Load()), brief), long)
	}
	begin := s.clock.since()
	m.away.Store(int64(d))
	m.back.Store(int64(begin + d))
	for s.clock.since()-begin < d {
		divide(16)
	}
}

// release gives back what seize owns.
func release(word *int64, free int64) { atomic.StoreInt64(word, free) }

// pause waits for an owner: at first about as long as one needs, later for as
// long as it takes others to run.
func pause(try int) {
	if try >= spins {
		runtime.Gosched()
		return
	}
	divide(1 << try)
}

// divide divides what was divided, some 5 ns each, which is long in coming for
// few instructions: a core's other thread may be the owner.
func divide(n int) {
	x := uint64(n) | 1
	for range n {
		x = longAway / x
	}
	if x == 0 {
		runtime.Gosched() // never, but the compiler has to divide
	}
}

// own owns a record for the holder of the stripe's lock. One that it owns
// already stays so: a group may list a policy twice.
func (m *guarded) own(w []int64) []int64 {
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
