package memory

import (
	"sync/atomic"
	"time"
)

// turns is how two share a record who call it on and on; a stripe has them for
// one record at a time. A hit waits for the record's cache lines to come over
// from the core that had them last. Where that is dear it is quicker to take
// turns: now and then one stays away for 20 µs, and what the other decides
// meanwhile it decides with the lines at home.
//
// How dear it is changes with where the host puts the processors, and whether
// it matters with what callers do between two calls. So it is tried: decisions
// are counted while all call, and then over a few turns. Turns that bring more
// are followed by others, and those that don't by none for a while. Where more
// than two cores call one record one at a time stays away, which may bring
// nothing; then there are no turns.
//
// What lost: to stay away from a record that somebody owned, for longer each
// time, where the lines took long to come. Where they are farther still both
// find it free, only late, and nobody stays. And to go by how long they take:
// with records of two lines that is half of what the other core costs, and what
// is far on one machine is near on another.
//
// It is a hint, like all of this that several write at once: it says who waits,
// never who owns.
type turns struct {
	tag   atomic.Uint32 // the record's
	begin atomic.Int64  // since when its decisions are counted, by the store's clock
	seen  atomic.Int64  // and one in 16 of them
	apart atomic.Int64  // ns between two decisions while all called
	left  atomic.Int64  // turns of a trial; 0: all call
	more  atomic.Int64  // trials until all call again, to be counted anew
	rest  atomic.Int64  // ns without trials, the last time that one brought nothing
	next  atomic.Int64  // when those are over
}

const (
	counted = 4 // bits: one hit in 16 is
	noticed = 6 // bits: one in 64 makes its record the stripe's that may have turns

	enough   = 32                     // counted, to know how far apart decisions are
	onAndOn  = time.Microsecond       // apart at most; who call less often seldom meet
	turn     = 20 * time.Microsecond  // of 10 µs a decision takes 85 ns, of 20 81, of 40 80
	between  = 300 * time.Nanosecond  // from turn to turn, in which all call
	trial    = 4                      // turns
	trials   = 64                     // in a row
	longRest = 100 * time.Millisecond // and no longer
	forgot   = 50 * time.Microsecond  // a turn is due for so long: they don't call on and on any more
)

// share tells the turns of a hit on a record, which it has given back, and
// whether that is to stay away for a turn, and to say when it is back. The
// next turn is another's if who stays away has lost its core by then.
func (m *guarded) share(tag uint32, read time.Duration) (stay bool) {
	t, due := &m.turns, m.due.Load()
	late := read - time.Duration(due)
	switch {
	case t.tag.Load() != tag:
		if draw(read, noticed) && late > forgot {
			m.notice(tag, read)
		}
	case due != 0 && late > forgot:
		m.try(read)
	case due != 0 && late >= 0:
		return m.due.CompareAndSwap(due, int64(read+turn+between))
	case draw(read, counted):
		if t.seen.Add(1) == enough && due == 0 {
			m.consider(read)
		}
	}
	return false
}

// notice makes a record the one that may have turns. A rest is the stripe's: two
// records that are called by turns would else begin a trial each time.
func (m *guarded) notice(tag uint32, now time.Duration) {
	m.all(now)
	m.turns.tag.Store(tag)
}

// all has all call, and counts that.
func (m *guarded) all(now time.Duration) {
	m.due.Store(0)
	m.turns.count(now)
}

func (t *turns) count(now time.Duration) {
	t.begin.Store(int64(now))
	t.seen.Store(0)
}

// mean is how far apart decisions were since they are counted.
func (t *turns) mean(now time.Duration) int64 {
	return (int64(now) - t.begin.Load()) / (max(t.seen.Load(), 1) << counted)
}

// consider begins the first trial where all have called for long enough. A
// rest is over sooner where they are much farther apart than at the trial that
// brought nothing: there were fewer then.
func (m *guarded) consider(now time.Duration) {
	t := &m.turns
	was, apart := t.apart.Load(), t.mean(now)
	if apart > int64(onAndOn) || int64(now) < t.next.Load() && apart < was*3/2 {
		t.count(now)
		return
	}
	t.apart.Store(apart)
	t.more.Store(trials)
	m.try(now)
}

// try begins a trial, and says when its first turn is.
func (m *guarded) try(now time.Duration) {
	m.turns.begins(now)
	m.due.Store(int64(now + between))
}

func (t *turns) begins(now time.Duration) {
	t.count(now)
	t.left.Store(trial)
}

// back is for who has stayed away. A trial is over sooner where nothing was
// counted since it began; it brought more where decisions were closer by an
// eighth. When the next turn is was said as this one began, and another may have
// taken it: to say it anew would have both stay away.
func (m *guarded) back(tag uint32, now time.Duration) {
	t := &m.turns
	if t.tag.Load() != tag || m.due.Load() == 0 {
		return
	}
	switch left := t.left.Add(-1); {
	case left > 0 && t.seen.Load() > 0:
	case t.mean(now) > t.apart.Load()*7/8:
		t.rest.Store(min(max(2*t.rest.Load(), int64(trial*turn)), int64(longRest)))
		t.next.Store(int64(now) + t.rest.Load())
		m.all(now)
	case t.more.Add(-1) > 0:
		t.rest.Store(t.rest.Load() / 2) // not forgotten: it may have been luck
		t.begins(now)
	default:
		m.all(now)
	}
}
