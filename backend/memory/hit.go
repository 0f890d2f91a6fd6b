package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Hits decides the calls that nearly all are, plain takes of one policy of which
// the key has a record, without the stripe's lock. What they ask of the policy
// each time is here at hand. To fill a Request and to hand it through the
// stations takes a quarter of such a decision. Made by Store.Hits; safe for
// concurrent use. The zero Hits decide nothing.
type Hits struct {
	store  *Store
	policy *backend.Policy
	name   name
	rest   int64  // of it
	key    int    // where a record has it
	most   uint64 // units: the largest cost that can pass
	hot    *hot
}

// Hits returns what decides hits by a policy that Check has passed, and that
// nobody writes any more. It is the zero Hits where none can be decided so: for
// algorithms that keep many numbers (BucketedWindow, SlidingLog), spread keys,
// and with a clock that may step back, which is read under the lock.
func (s *Store) Hits(p *backend.Policy) Hits {
	h := s.hits(p)
	if h.store != nil {
		h.hot = new(hot)
	}
	return h
}

// hits are for one call: they remember nothing.
func (s *Store) hits(p *backend.Policy) Hits {
	k := p.Algorithm.Kind()
	if keepsMany(k) || p.Shards >= 2 || !s.clock.steady() {
		return Hits{}
	}
	n := s.nameOf(p, "")
	return Hits{s, p, n, n.rest(), header + wordsOf(k), uint64(p.Algorithm.Max()), nil}
}

// Take writes the answer to a take of so many units to the zero d. Where it
// returns false nothing was counted or written, and Do has to be asked: it knows
// what is wrong, if something is.
func (h *Hits) Take(ctx context.Context, key string, cost int64, d *backend.Decision) bool {
	if uint64(cost-1) >= h.most || uint(len(key)-1) >= inline || h.store.closed.Load() || ctx.Err() != nil {
		return false
	}
	w, m, tag, read := h.own(key)
	if w == nil {
		return false
	}
	now, used, retryAt, resetAt := h.policy.Algorithm.Try(w[header:], h.store.clock.micros(read), cost)
	stay(w, resetAt, now)                               // also where it is denied: see read
	h.policy.Word(d, cost, now, used, retryAt, resetAt) // while it is owned: the caller's copy of d had to wait for words still on their way, a tenth of a hit
	release(&w[tagWord])
	if due := m.due.Load(); draw(read, counted) || due != 0 && int64(read) >= due {
		h.store.after(m, tag, read, now)
	}
	return true
}

// own owns the policy's record of the key, and tells the time before: while a
// record is owned others wait for it.
func (h *Hits) own(key string) (w []int64, m *guarded, tag uint32, read time.Duration) {
	s := h.store
	if p := h.hot.of(key); p != nil {
		if read = s.clock.since(); p.own() {
			return p.w, p.m, p.tag, read
		}
		h.hot.leave(p)
	}
	hash := maphash.String(s.seed, key)
	tag, m = h.name.tag(hash), &s.stripes[hash>>stripeShift].mu
	var next *place
	if read = s.clock.since(); draw(read, remembered) {
		next = h.hot.notice(hash, key, m, tag, head(tag, h.name.kind(), key))
	}
	if w = h.seize(m, tag, key); w != nil && next != nil {
		next.w = w
		h.hot.place.Store(next)
	}
	return w, m, tag, read
}

// after does what one hit in 16 does for all, and those whose turn it may be to
// stay away: its answer waits for that.
func (s *Store) after(m *guarded, tag uint32, read time.Duration, now int64) {
	if m.share(tag, read) {
		m.back(tag, s.clock.pass(turn))
	}
	if draw(read, everyBits) && (s.idle.Load() || draw(read, seldomBits)) {
		s.sweepAnother(now, 2*some)
	}
}

// seize finds the policy's record of a key and owns it, or returns nil: also
// where there is one, but somebody is about to change more than its words.
//
// What a search without the lock finds is a hint. It holds once the record is
// owned: then it lives, and nobody can drop or move it until it is given back.
// Most records lie in their likely cell, so a core guesses that the marks say so
// and asks for the record before they are there: with a million keys they may be
// far, too. They are nearer than it: where the guess was wrong they say where to go
// sooner than what lies in that cell would.
func (h *Hits) seize(m *guarded, tag uint32, key string) []int64 {
	t := m.table(h.key + keyWords(len(key)))
	if t == nil {
		return nil
	}
	free, g := head(tag, h.name.kind(), key), t.home(tag)
	marks, i := t.marks(g), likely(tag)
	w := t.at(g*group + i)
	if markAt(marks, i) == markOf(tag) && tryHold(&w[tagWord], free) {
		if h.has(w, key) {
			return w
		}
		release(&w[tagWord])
	}
	return h.search(m, t, g, marks, free, key)
}

// search is seize by the marks.
func (h *Hits) search(m *guarded, t *table, g int, marks uint64, free int64, key string) []int64 {
	mark := markOf(uint32(free >> 32))
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
			if h.has(w, key) {
				return w
			}
			release(&w[tagWord])
		}
		if matches(marks, empty) != 0 {
			return nil
		}
		g = t.next(g)
		marks = t.marks(g)
	}
	return nil
}

// has is guarded.is, where the key is in the record.
func (h *Hits) has(w []int64, key string) bool {
	return restIn(atomic.LoadInt64(&w[untilWord])) == h.rest && isKey(w, h.key, key)
}
