package memory

import (
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// few is how many policies of a call are looked at without allocating.
const few = 4

// look is what a decision holds of one policy between looking and taking.
type look struct {
	name   name
	words  []int64 // what counts; none's where nothing does
	own    []int64 // the key's own record, which is owned; nil where it has none
	shared *record // they are the overflow's
	view   algo.View
}

// none are the words of a key that nothing is kept of. Looking never writes.
var none [3]int64

// decide decides with room for as many looks and readings as the group has
// policies. It looks at every one before it takes from any.
//
// Only looking and taking are done under the lock. The hashes and the clock are
// read before it, and the answer is worded after it: with two cores on one key,
// what is under the lock is the time that a call takes.
func (s *Store) decide(g *backend.Group, op backend.Op, ls []look, rs []backend.Reading, d *backend.Decision) {
	hash := s.hash(g)
	st := &s.stripes[hash>>stripeShift]
	for i := range ls {
		ls[i].name = s.nameOf(&g.Policies[i], g.Sub)
	}
	now := s.before()
	st.mu.Lock()
	now = s.instant(&st.mu, now)
	st.tick(s, now)
	if op == backend.Reset {
		st.forget(s, g, ls, hash)
	}
	if op != backend.Peek {
		st.mu.prepare(g)
	}
	now = s.own(&st.mu, g, hash, ls, now)
	now, fits, spilled := s.look(&st.mu, g, ls, now)
	if op == backend.Reset {
		s.renew(&st.mu, g, hash, ls, now)
	}
	at := now
	for i := range ls {
		at = max(at, ls[i].view.At)
		if op == backend.Take && fits {
			rs[i] = s.take(&st.mu, g, hash, i, &ls[i], now, spilled)
		} else {
			rs[i] = read(g, i, &ls[i], op, now)
		}
	}
	disownAll(ls)
	if spilled {
		s.spill.mu.Unlock()
	}
	st.mu.Unlock()
	g.Decide(op, now, at, rs, d)
}

// prepare makes room for as many records as the group may get, while none of
// its own is owned.
func (m *guarded) prepare(g *backend.Group) {
	for i := range g.Policies {
		m.reserve(sizeOf(g.Policies[i].Algorithm.Kind(), len(g.Key)), len(g.Policies))
	}
}

// own owns the records that the key has, all before any is looked at, so that
// no hit comes between two of a group. The instant is not before one that a
// hit has left in them: the clock has been there.
func (s *Store) own(m *guarded, g *backend.Group, hash uint64, ls []look, now int64) int64 {
	for i := range ls {
		l, p := &ls[i], &g.Policies[i]
		t, cell := m.find(hash, g.Key, l.name)
		if t == nil {
			continue
		}
		k := p.Algorithm.Kind()
		l.own = m.own(t.at(cell))
		l.words = m.counts(l.own, k)
		if s.clock.steady() && !keepsMany(k) {
			now = max(now, p.Algorithm.Newest(l.words))
		}
	}
	if s.clock.steady() {
		m.latest = now
	}
	return now
}

func disownAll(ls []look) {
	for i := range ls {
		if w := ls[i].own; w != nil {
			disown(w)
		}
	}
}

// look views every policy of the group and says whether all fit. Where a
// policy has no record while an overflow may count for it, the overflow is
// locked, until the decision is made; it may have decided at an instant after
// now, and then all is looked at again, at that.
func (s *Store) look(m *guarded, g *backend.Group, ls []look, now int64) (at int64, fits, spilled bool) {
	fits = true
	for i := 0; i < len(ls); i++ {
		l, a := &ls[i], &g.Policies[i].Algorithm
		if l.own != nil {
			a.Look(&l.view, l.words, now)
			fits = a.Fits(&l.view, g.CostOf(i)) && fits
			continue
		}
		l.words, l.shared = none[:], nil
		if spilled {
			l.spill(s.spill.find(g, i, now))
		} else if s.spill.live.Load() || s.kept.Load() >= s.most {
			s.spill.mu.Lock()
			spilled, fits, i = true, true, -1
			now = s.spill.instant(s, m, now)
			continue
		}
		a.Look(&l.view, l.words, now)
		fits = a.Fits(&l.view, g.CostOf(i)) && fits
	}
	return now, fits, spilled
}

func (l *look) spill(r *record) {
	if l.shared = r; r != nil {
		l.words = r.words
	}
}

// take charges one policy.
func (s *Store) take(m *guarded, g *backend.Group, hash uint64, i int, l *look, now int64, spilled bool) backend.Reading {
	a := &g.Policies[i].Algorithm
	if l.own == nil {
		s.record(m, g, hash, i, l, spilled)
	}
	w := a.Take(l.words, &l.view, g.CostOf(i))
	r := backend.Reading{Used: l.view.Used, ResetAt: a.ResetAt(&l.view)}
	if l.own == nil {
		l.shared.words, l.shared.resetAt = w, r.ResetAt
		return r
	}
	if keepsMany(a.Kind()) {
		m.many[l.own[header]] = w
	}
	stay(l.own, r.ResetAt, now)
	return r
}

// read tells what a policy says where nothing is taken.
func read(g *backend.Group, i int, l *look, op backend.Op, now int64) backend.Reading {
	a, n := &g.Policies[i].Algorithm, g.CostOf(i)
	r := backend.Reading{Used: l.view.Used, ResetAt: a.ResetAt(&l.view)}
	if op == backend.Take {
		// What denies must stay for as long as it counts by these numbers.
		if l.own != nil {
			stay(l.own, r.ResetAt, now)
		} else if l.shared != nil {
			l.shared.resetAt = max(l.shared.resetAt, r.ResetAt)
		}
	}
	if op != backend.Reset && !a.Fits(&l.view, n) {
		r.RetryAt = a.RetryAt(l.words, &l.view, n)
	}
	return r
}

// record finds what to charge where the key has no record: a new one, or
// where the store is full the overflow's. A new one begins as a copy of what
// the overflow counts: the key may have taken some of that, and must not get it
// twice. A store that filled up since the group was looked at takes the
// record all the same: what it would share was not read.
func (s *Store) record(m *guarded, g *backend.Group, hash uint64, i int, l *look, spilled bool) {
	p := &g.Policies[i]
	if s.kept.Load() >= s.most && spilled {
		if l.shared == nil {
			l.shared = s.spill.record(g, i)
		}
		l.words = l.shared.words
		return
	}
	s.keep(m, g, hash, i, l, fresh(&p.Algorithm, l.words), 0)
}

// keep enters a record of the key's own and looks at that from now on.
func (s *Store) keep(m *guarded, g *backend.Group, hash uint64, i int, l *look, words []int64, resetAt int64) {
	p := &g.Policies[i]
	l.own, l.shared = m.keep(hash, g.Key, l.name, words, resetAt), nil
	l.words = m.counts(l.own, p.Algorithm.Kind())
	s.kept.Add(1)
}

// fresh returns words for a new record that begins with what from holds: its
// own memory for a kind that keeps many, else from itself, to be copied.
func fresh(a *algo.Algorithm, from []int64) []int64 {
	if !keepsMany(a.Kind()) {
		return from
	}
	w := make([]int64, max(len(from), a.Words()))
	copy(w, from)
	return w
}

// renew gives a key that was reset a record of its own where it would else be
// read from the overflow: an empty one, that stays for as long as that.
func (s *Store) renew(m *guarded, g *backend.Group, hash uint64, ls []look, now int64) {
	for i := range ls {
		if l := &ls[i]; l.shared != nil && s.kept.Load() < s.most {
			a := &g.Policies[i].Algorithm
			s.keep(m, g, hash, i, l, fresh(a, none[:]), l.shared.resetAt)
			a.Look(&l.view, l.words, now)
		}
	}
}

// forget drops the group's own records.
func (st *stripe) forget(s *Store, g *backend.Group, ls []look, hash uint64) {
	for i := range ls {
		if t, cell := st.mu.find(hash, g.Key, ls[i].name); t != nil {
			st.mu.own(t.at(cell))
			st.mu.drop(t, cell)
			s.kept.Add(-1)
		}
	}
}
