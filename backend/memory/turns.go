package memory

import (
	"sync/atomic"
	"time"
)

// turns is how those share a record who call it on and on, one record a stripe.
// A hit waits for the record's cache lines to come over from the core that had
// them last. Where that is dear it is quicker to take turns: now and then one
// stays away for 20 µs, and what the others decide meanwhile they decide with
// the lines at home.
//
// How dear it is changes with where the host puts the processors, and whether
// it matters with what callers do between two calls. So it is tried: decisions
// are counted while all call, and then over a few turns. Turns that bring more
// are followed by others, and those that don't by none for a while. On an Intel
// Xeon where the lines are far two callers of one key have 75 to 82 ns a
// decision so, had 80 to 95 before, and 210 to 300 with nothing of the kind; one
// alone has 76 (-bench Hot). With 50 ns of work between two calls there is no
// difference, with 100 a decision takes up to 8 % longer than before. What lost:
// to stay away from a record that somebody owned, for longer each time, where
// the lines took long to come. Where they are farther still both find it free,
// and nobody stays. And to go by how long they take: with records of two lines
// that is half of what the other core costs, and what is far on one machine is
// near on another.
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

	enough  = 16                     // counted, to know how far apart decisions are
	onAndOn = time.Microsecond       // apart at most; who call less often seldom meet
	turn    = 20 * time.Microsecond  // with 10 µs 85 ns a decision, with 40 80
	between = 300 * time.Nanosecond  // from turn to turn, for it to be another's
	trial   = 4                      // turns
	trials  = 32                     // in a row
	atMost  = 100 * time.Millisecond // without trials
	forgot  = time.Millisecond       // for how long a turn may be due, before nobody calls any more
)

// share tells the turns of a hit on a record, which it has given back, and
// whether that is to stay away for a turn, and to say when it is back.
func (m *guarded) share(tag uint32, read time.Duration) (stay bool) {
	t, due := &m.turns, m.due.Load()
	switch {
	case t.tag.Load() != tag:
		if draw(read, noticed) && read-time.Duration(due) > forgot {
			m.notice(tag, read)
		}
	case due != 0 && int64(read) >= due:
		return m.due.CompareAndSwap(due, 0)
	case draw(read, counted):
		if t.seen.Add(1) == enough && t.left.Load() == 0 {
			m.consider(read)
		}
	}
	return false
}

// notice makes a record the one that may have turns.
func (m *guarded) notice(tag uint32, now time.Duration) {
	m.due.Store(0)
	m.turns.tag.Store(tag)
	m.turns.rest.Store(0)
	m.turns.next.Store(0)
	m.turns.count(now)
}

// count counts anew, while all call.
func (t *turns) count(now time.Duration) {
	t.left.Store(0)
	t.begin.Store(int64(now))
	t.seen.Store(0)
}

// mean is how far apart decisions were since they are counted.
func (t *turns) mean(now time.Duration) int64 {
	return (int64(now) - t.begin.Load()) / (max(t.seen.Load(), 1) << counted)
}

// consider begins the first trial where all have called for long enough.
func (m *guarded) consider(now time.Duration) {
	t := &m.turns
	t.apart.Store(t.mean(now))
	if t.apart.Load() > int64(onAndOn) || int64(now) < t.next.Load() {
		t.count(now)
		return
	}
	t.more.Store(trials)
	m.try(now)
}

func (m *guarded) try(now time.Duration) {
	m.turns.count(now)
	m.turns.left.Store(trial)
	m.due.Store(int64(now + between))
}

// back is for who has stayed away. A trial is over sooner where nobody decided
// meanwhile; it brought something where decisions were closer by an eighth.
func (m *guarded) back(tag uint32, now time.Duration) {
	t := &m.turns
	if t.tag.Load() != tag {
		return
	}
	switch left := t.left.Add(-1); {
	case left > 0 && t.seen.Load() > 0:
		m.due.Store(int64(now + between))
	case t.mean(now) > t.apart.Load()*7/8:
		t.rest.Store(min(max(2*t.rest.Load(), int64(trial*turn)), int64(atMost)))
		t.next.Store(int64(now) + t.rest.Load())
		t.count(now)
	case t.more.Add(-1) > 0:
		t.rest.Store(0)
		m.try(now)
	default:
		t.count(now)
	}
}
