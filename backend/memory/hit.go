package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// shape is what a hit reads of its stripe to find a record, without the lock.
// It is never written: where segments, names or the number of slots change,
// the stripe gets another. The slots themselves are.
//
// So what a search finds is a hint. It holds once the record is owned and the
// stripe has the same shape still: then the place is one of this shape's, the
// record lives, and nobody can drop or move it until it is given back.
type shape struct {
	index
	words [][]int64
	names []id
}

// Hit decides the call that nearly all are, a plain take of one policy of which
// the key has a record, without the stripe's lock, and writes the answer to the
// zero d. Where it returns false nothing was counted, and Do has to be asked. A
// clock that may step back is read under the lock, so with one there are no
// hits.
//
// To fill a Request and to hand it through the stations takes a quarter of such
// a decision.
func (s *Store) Hit(ctx context.Context, key string, p *backend.Policy, cost int64, d *backend.Decision) bool {
	a := &p.Algorithm
	if cost < 1 || cost > a.Max() || key == "" || keepsMany(a.Kind()) || s.closed.Load() || !s.clock.steady() || ctx.Err() != nil {
		return false
	}
	hash := maphash.String(s.seed, key)
	t, m := tag(hash, p), &s.stripes[hash>>stripeShift].mu
	read := s.clock.since()
	w := s.seize(m, t, key, p, read)
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
	if draw(read, everyBits) {
		s.sweepAnother(now, 2*some)
	}
	return true
}

// seize finds a policy's record of a key and owns it, or returns nil: also
// where there is one, but somebody is about to change more than its words.
func (s *Store) seize(m *guarded, tag uint32, key string, p *backend.Policy, read time.Duration) []int64 {
	sh := m.shape.Load()
	if sh == nil {
		return nil
	}
	free := head(tag, key)
	for i, n := sh.home(tag), len(sh.slots); n > 0; i, n = sh.next(i), n-1 {
		e := sh.slots[i].Load()
		if e == 0 {
			return nil
		}
		if tagOf(e) != tag {
			continue
		}
		w := sh.at(placeOf(e))
		if w == nil || !atomic.CompareAndSwapInt64(&w[tagWord], free, free|held) && !s.contend(m, &w[tagWord], free, read) {
			return nil
		}
		if m.shape.Load() == sh && sh.is(w, key, p) {
			return w
		}
		release(&w[tagWord], free)
	}
	return nil
}

// at returns the words from a place on, nil where the shape has none there:
// the slot is newer.
func (sh *shape) at(p place) []int64 {
	if int(p>>segBits) >= len(sh.words) {
		return nil
	}
	w := sh.words[p>>segBits]
	if int(p%segMax) >= len(w) {
		return nil
	}
	return w[p%segMax:]
}

// is reports whether a record of a key of that length is the key's own for
// the policy.
func (sh *shape) is(w []int64, key string, p *backend.Policy) bool {
	n, k := &sh.names[nameIn(w[untilWord])], p.Algorithm.Kind()
	return n.kind == k && n.policy == p.Name && n.sub == "" && isKey(w[header+wordsOf(k):], key)
}

// publish lets hits see what changed.
func (m *guarded) publish() {
	m.shape.Store(&shape{index{slots: m.index.slots}, m.words, m.names})
}
