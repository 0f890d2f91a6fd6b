package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Hit decides the call that nearly all are, a plain take of one policy of which
// the key has a record, without the stripe's lock, and writes the answer to the
// zero d. Where it returns false nothing was counted, and Do has to be asked: for
// algorithms that keep many numbers (BucketedWindow, SlidingLog), keys beyond
// 160 bytes, and with a clock that may step back, which is read under the lock.
//
// To fill a Request and to hand it through the stations takes a quarter of such
// a decision.
func (s *Store) Hit(ctx context.Context, key string, p *backend.Policy, cost int64, d *backend.Decision) bool {
	a := &p.Algorithm
	if cost < 1 || cost > a.Max() || key == "" || len(key) > inline || keepsMany(a.Kind()) || s.closed.Load() || !s.clock.steady() || ctx.Err() != nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	t, m := tag(hash, p), &s.stripes[hash>>stripeShift].mu
	read := s.clock.since()
	w := s.seize(m, t, key, p)
	if w == nil {
		return false
	}
	words := w[header : header+wordsOf(a.Kind())]
	now := max(s.clock.micros(read), a.Newest(words)) // the clock has been there
	var v algo.View
	var r backend.Reading
	a.Look(&v, words, now)
	if a.Fits(&v, cost) {
		a.Take(words, &v, cost)
	} else {
		r.RetryAt = a.RetryAt(nil, &v, cost)
	}
	r.Used, r.ResetAt = v.Used, a.ResetAt(&v)
	stay(w, r.ResetAt, now) // also where it is denied: see read
	r.Word(d, p, cost, now) // while it is owned: the caller's copy of d had to wait for words still on their way, a tenth of a hit
	release(&w[tagWord], head(t, key))
	if due := m.due.Load(); draw(read, counted) || due != 0 && int64(read) >= due {
		s.after(m, t, read, now)
	}
	return true
}

// after does what one hit in 16 does for all, and those whose turn it may be to
// stay away: its answer waits for that.
func (s *Store) after(m *guarded, tag uint32, read time.Duration, now int64) {
	if m.share(tag, read) {
		m.back(tag, s.clock.pass(turn))
	}
	if draw(read, everyBits) {
		s.sweepAnother(now, 2*some)
	}
}

// seize finds a policy's record of a key and owns it, or returns nil: also
// where there is one, but somebody is about to change more than its words.
//
// What a search without the lock finds is a hint. It holds once the record is
// owned: then it lives, and nobody can drop or move it until it is given back.
// Most records lie where they are guessed: those need no marks, and where they
// do the marks were asked for meanwhile.
func (s *Store) seize(m *guarded, tag uint32, key string, p *backend.Policy) []int64 {
	t := m.table(sizeOf(p.Algorithm.Kind(), len(key)))
	if t == nil {
		return nil
	}
	free, mark, g := head(tag, key), markOf(tag), t.home(tag)
	marks := t.marks(g)
	if w := t.guess(tag, free); w != nil && atomic.CompareAndSwapInt64(&w[tagWord], free, free|held) {
		if m.is(w, key, "", p) {
			return w
		}
		release(&w[tagWord], free)
	}
	for n := t.groups; n > 0; n-- {
		for set := matches(marks, mark); set != 0; set &= set - 1 {
			w := t.at(g*group + first(set))
			if !atomic.CompareAndSwapInt64(&w[tagWord], free, free|held) {
				if atomic.LoadInt64(&w[tagWord])&^dead != free {
					continue // another key's: one in 250 has the same mark
				}
				if !contend(&w[tagWord], free) {
					return nil
				}
			}
			if m.is(w, key, "", p) {
				return w
			}
			release(&w[tagWord], free)
		}
		if matches(marks, empty) != 0 {
			return nil
		}
		g = t.next(g)
		marks = t.marks(g)
	}
	return nil
}
