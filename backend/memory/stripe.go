package memory

import (
	"strings"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so a set of them is decided all or nothing.
type stripe struct {
	mu struct {
		sync.Mutex
		records map[id]*record
		calls   uint
	}
	_ [40]byte // a cache line each: neighbours' locks must not share one
}

// id names a record: what one policy keeps of one key. Two algorithms under
// one policy name do not read each other's words.
type id struct {
	key, sub, policy string
	kind             algo.Kind
}

// record holds an algorithm's words. It leaves once it is as new.
type record struct {
	words   []int64 // short, or memory of its own for the kinds that keep many
	short   [3]int64
	resetAt int64
}

func name(g *backend.Group, i int) id {
	p := &g.Policies[i]
	return id{g.Key, g.Sub, p.Name, p.Algorithm.Kind()}
}

// few is how many policies of a call are looked at without allocating.
const few = 4

// look is what a decision holds of one policy between looking and taking.
type look struct {
	own   bool // the record is the key's own, not the overflow's
	found *record
	view  algo.View
}

// none are the words of a key that nothing is kept of. Looking never writes.
var none [3]int64

func (l *look) words() []int64 {
	if l.found == nil {
		return none[:]
	}
	return l.found.words
}

// decide looks at every policy before it takes from any. Called with st locked.
func (s *Store) decide(st *stripe, g *backend.Group, op backend.Op) backend.Decision {
	var looks [few]look
	var readings [few]backend.Reading
	ls, rs := looks[:0], readings[:0]
	if len(g.Policies) > few {
		ls, rs = make([]look, 0, len(g.Policies)), make([]backend.Reading, 0, len(g.Policies))
	}
	now := s.now()
	st.tick(s, now)
	if op == backend.Reset {
		st.forget(s, g)
	}
	ls, fits, spilled := s.look(st, g, ls, now)
	if spilled {
		defer s.spill.mu.Unlock()
	}
	if op == backend.Reset {
		s.renew(st, g, ls, now)
	}
	at := now
	for i := range ls {
		at = max(at, ls[i].view.At)
		rs = append(rs, s.settle(st, g, i, &ls[i], op, fits, spilled))
	}
	return g.Decide(op, now, at, rs)
}

// look views every policy of the group and says whether all fit. Where a
// policy has no record while an overflow may count for it, the overflow is
// locked, until the decision is made.
func (s *Store) look(st *stripe, g *backend.Group, ls []look, now int64) (all []look, fits, spilled bool) {
	fits = true
	for i := range g.Policies {
		l := look{own: true, found: st.mu.records[name(g, i)]}
		if l.found == nil && !spilled && (s.spill.live.Load() || s.kept.Load() >= s.most) {
			s.spill.mu.Lock()
			spilled = true
		}
		if l.found == nil && spilled {
			l.own, l.found = false, s.spill.find(g, i, now)
		}
		a := &g.Policies[i].Algorithm
		l.view = a.View(l.words(), now)
		fits = a.Fits(&l.view, g.CostOf(i)) && fits
		ls = append(ls, l)
	}
	return ls, fits, spilled
}

// settle takes from one policy where all of them fit, and reads it.
func (s *Store) settle(st *stripe, g *backend.Group, i int, l *look, op backend.Op, fits, spilled bool) backend.Reading {
	a, n := &g.Policies[i].Algorithm, g.CostOf(i)
	if op == backend.Take && fits {
		r := s.record(st, g, i, l, spilled)
		r.words = a.Take(r.words, &l.view, n)
		r.resetAt = a.ResetAt(&l.view)
		return backend.Reading{Used: l.view.Used, ResetAt: r.resetAt}
	}
	r := backend.Reading{Used: l.view.Used, ResetAt: a.ResetAt(&l.view)}
	if op == backend.Take && l.found != nil {
		// What denies must stay for as long as it counts by these numbers.
		l.found.resetAt = max(l.found.resetAt, r.ResetAt)
	}
	if op != backend.Reset && !a.Fits(&l.view, n) {
		r.RetryAt = a.RetryAt(l.words(), &l.view, n)
	}
	return r
}

// record returns the record to charge: the key's own, or a new one, or where
// the store is full the overflow's. A new one begins as a copy of what the
// overflow counts: the key may have taken some of that, and must not get it
// twice. A store that filled up since the group was looked at takes the
// record all the same: what it would share was not read.
func (s *Store) record(st *stripe, g *backend.Group, i int, l *look, spilled bool) *record {
	if l.own && l.found != nil {
		return l.found
	}
	if s.kept.Load() >= s.most && spilled {
		return s.spill.record(g, i, l)
	}
	return st.keep(s, g, i, fresh(&g.Policies[i].Algorithm, l.found))
}

// fresh returns a record for the algorithm, with from's words where there is one.
func fresh(a *algo.Algorithm, from *record) *record {
	r := &record{}
	r.words = r.short[:]
	if from != nil && len(from.words) > len(r.short) {
		r.words = make([]int64, len(from.words))
	} else if n := a.Words(); n > len(r.short) {
		r.words = make([]int64, n)
	}
	if from != nil {
		copy(r.words, from.words)
		r.resetAt = from.resetAt
	}
	return r
}

// renew gives a key that was reset a record of its own where it would else be
// read from the overflow: an empty one, that stays for as long as that.
func (s *Store) renew(st *stripe, g *backend.Group, ls []look, now int64) {
	for i := range ls {
		if l := &ls[i]; l.found != nil && s.kept.Load() < s.most {
			a := &g.Policies[i].Algorithm
			r := st.keep(s, g, i, fresh(a, nil))
			r.resetAt = l.found.resetAt
			l.own, l.found, l.view = true, r, a.View(r.words, now)
		}
	}
}

// keep enters a record.
func (st *stripe) keep(s *Store, g *backend.Group, i int, r *record) *record {
	n := name(g, i)
	n.key = strings.Clone(n.key) // the caller's string may be a small part of a large one
	if st.mu.records == nil {
		st.mu.records = map[id]*record{}
	}
	st.mu.records[n] = r
	s.kept.Add(1)
	return r
}

// forget drops the group's own records.
func (st *stripe) forget(s *Store, g *backend.Group) {
	for i := range g.Policies {
		n := name(g, i)
		if st.mu.records[n] != nil {
			delete(st.mu.records, n)
			s.kept.Add(-1)
		}
	}
}

// sweeping says how often a stripe looks for records that are as new, and at
// how many: idle keys leave while others call, with no goroutine and no pause.
// n calls have looked at n/2 records, in the stripes that are called and in
// the others.
const (
	every = 16
	some  = 4
)

func (st *stripe) tick(s *Store, now int64) {
	st.mu.calls++
	if st.mu.calls%every == 0 {
		st.sweep(s, now, some)
		s.sweepAnother(now)
	} else if s.kept.Load() >= s.most {
		st.sweep(s, now, 1)
	}
}

// sweepAnother sweeps the next stripe in turn, where nobody is in it: keys
// leave though nobody calls in their own.
func (s *Store) sweepAnother(now int64) {
	st := &s.stripes[s.hand.Add(1)%uint32(len(s.stripes))]
	if st.mu.TryLock() {
		st.sweep(s, now, some)
		st.mu.Unlock()
	}
}

// sweep looks at n records, wherever the map begins, and drops the idle.
func (st *stripe) sweep(s *Store, now int64, n int) {
	for k, r := range st.mu.records {
		if r.resetAt <= now {
			delete(st.mu.records, k)
			s.kept.Add(-1)
		}
		if n--; n <= 0 {
			return
		}
	}
}
