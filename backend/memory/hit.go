package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"

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

// Hit decides the call that nearly all are: one policy of which the key has a
// record, without the stripe's lock; see backend.Quick. A clock that may step
// back is read under the lock, so with one there are no hits.
func (s *Store) Hit(ctx context.Context, key string, p *backend.Policy, cost int64) (now int64, r backend.Reading, ok bool) {
	a := &p.Algorithm
	if cost < 1 || cost > a.Max() || key == "" || keepsMany(a.Kind()) || s.closed.Load() || !s.clock.steady() || ctx.Err() != nil {
		return 0, r, false
	}
	hash := maphash.String(s.seed, key)
	t, m := tag(hash, p), &s.stripes[hash>>stripeShift].mu
	now, turn := s.read()
	w := m.seize(t, key, p)
	if w == nil {
		return 0, r, false
	}
	words := w[header : header+wordsOf(a.Kind())]
	now = max(now, a.Newest(words)) // the clock has been there
	var v algo.View
	a.Look(&v, words, now)
	if a.Fits(&v, cost) {
		a.Take(words, &v, cost)
	} else {
		r.RetryAt = a.RetryAt(nil, &v, cost)
	}
	r.Used, r.ResetAt = v.Used, a.ResetAt(&v)
	stay(w, r.ResetAt, now) // also where it is denied: see read
	release(&w[tagWord], head(t, key))
	if turn {
		s.sweepAnother(now, 2*some)
	}
	return now, r, true
}

// seize finds a policy's record of a key and owns it, or returns nil: also
// where there is one, but somebody is about to change more than its words.
func (m *guarded) seize(tag uint32, key string, p *backend.Policy) []int64 {
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
		if w == nil || !atomic.CompareAndSwapInt64(&w[tagWord], free, free|held) && !seize(&w[tagWord], free) {
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
