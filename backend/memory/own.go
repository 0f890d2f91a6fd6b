package memory

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A record has an owner while its words are read or written, told by two bits
// of its first word: a hit, which holds no lock, or the holder of the stripe's
// lock. The rest of that word is the tag, the kind and the length, which whoever
// looks for a key knows, so a hit owns a record by one swap that knows what
// it expects. Where two cores call one key each trip of the cache line is what a
// call takes: a record is looked at before it is owned (see seize), one that
// somebody owns is not looked at again, and there may be turns (see turns).
//
// A hit owns one record, does arithmetic, and gives it back; it waits for
// nothing meanwhile. The holder of the lock owns as many as it decides on. So
// nobody who owns waits for somebody who waits for it. An owner may lose its
// core between the two; whoever waits lets others run then, so it comes back.
const (
	held = 1 << 31 // by a hit
	mine = 1 << 30 // by the stripe's lock
	dead = held | mine

	spins    = 10            // tries on the core, each after twice as long as the last
	longAway = 1<<63 + 12345 // never less than what divides it: see divide
	yields   = 16            // tries after which a hit waits for the lock instead

	// The first try of a hit that has met an owner, after 80 ns: that needs some
	// 20. After 5 ns each try takes a line from the owner, who needs it to give the
	// record back: on a machine of far lines two had 210 to 300 ns a decision so,
	// without turns, and 130 to 146 from 0.3 µs on. On an AMD EPYC, with turns, two
	// decide as much from 20 ns on as from 640 while its lines are far, and a
	// quarter more while they are near; with 0.1 to 0.5 µs of work between two calls
	// p99 is 0.24 µs or so, and was 0.54.
	patient = 4
)

// contend owns, for a hit that failed once, the record that has these bits in
// its first word while nobody does. It gives up where the record is dead,
// another key's or the lock's, and where the owner is long away.
func contend(word *int64, free int64) bool {
	for try := patient; try < yields; try++ {
		pause(try)
		if atomic.CompareAndSwapInt64(word, free, free|held) {
			return true
		}
		if atomic.LoadInt64(word)&^held != free {
			return false
		}
	}
	return false
}

// tryHold owns, for a hit, the record that has these bits in its first word while
// nobody does. It looks first: to fail takes the line from an owner.
func tryHold(word *int64, free int64) bool {
	return atomic.LoadInt64(word) == free && atomic.CompareAndSwapInt64(word, free, free|held)
}

// release gives back what seize owns.
func release(word *int64) { atomic.StoreInt64(word, atomic.LoadInt64(word)&^held) }

// pause waits for an owner: at first about as long as one needs, later for as
// long as it takes others to run.
func pause(try int) {
	if try >= spins {
		runtime.Gosched()
		return
	}
	divide(1 << try)
}

// pass lets some time pass, and returns the instant then. By a clock that stands
// still for longer that is about three times as long.
func (c *clock) pass(d time.Duration) (now time.Duration) {
	begin := c.since()
	now = begin
	for rounds := d / (20 * time.Nanosecond); rounds > 0 && now-begin < d; rounds-- {
		divide(16)
		now = c.since()
	}
	return now
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
