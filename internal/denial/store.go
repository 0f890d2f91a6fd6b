// Package denial is the deny cache. It answers from this process a call whose key is
// known to be denied. So a flood on a spent key costs its store about one call per
// second.
//
// Its answers are at most a second old, or a minute where no store decides. Changes of a
// key by another process (a reset, a refund, a raised limit) show within that second.
// Changes by this process show at once. Package shard keeps the denials of spread keys
// here too.
package denial

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Store is a backend.Store over another. It answers as next does, and a Take or a
// Reserve that next would deny again without asking it. Safe for concurrent use.
type Store struct {
	next     backend.Store
	cache    *Cache
	ttl      time.Duration // for which a denial holds; 0: none does
	answered atomic.Int64
	yielded  atomic.Int64 // when a denied call last let other goroutines run
}

// New returns the wrapper over next. store is what limiters on the store share:
// all wrappers on it have one cache. A denial holds for ttl at most. With a ttl of
// 0 and below none holds, and what is reset is still forgotten by the others.
func New(next backend.Store, store *layer.Shared, ttl time.Duration) *Store {
	return &Store{next: next, cache: Of(store), ttl: max(0, min(ttl, Longest))}
}

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next. Then nothing is answered from memory.
func (s *Store) Close() error {
	defer s.cache.store.Closed.Store(true) // for a store of another author; one of ours has done it
	return s.next.Close()
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }

// Most returns the keys whose denials have answered the most calls, at most n.
func (s *Store) Most(n int) []Key { return s.cache.most(n) }

// Answered returns how many calls the wrapper answered itself.
func (s *Store) Answered() int64 { return s.answered.Load() }

// Do decides one request: from memory where it can.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	if v := s.enter(ctx, r, d); !v.answered {
		defer func() { s.Note(&v, r, d, err) }() // also if next panics
		err = s.next.Do(ctx, r, d)
	}
	return err
}

// DoAll decides each of the requests as Do would. It decides those that it can't answer from
// memory in one batch if that is all of them; see layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []layer.Answer) {
	visits, batch := make([]Visit, len(rs)), true
	for i := range rs {
		visits[i] = s.enter(ctx, &rs[i], &answers[i].Decision)
		batch = batch && !visits[i].answered
		defer func() { s.Note(&visits[i], &rs[i], &answers[i].Decision, answers[i].Err) }()
	}
	if batch {
		layer.DoAll(ctx, s.next, rs, answers)
		return
	}
	for i := range rs {
		if !visits[i].answered {
			answers[i].Err = s.next.Do(ctx, &rs[i], &answers[i].Decision)
		}
	}
}

// Known answers a call of several keys if this one is known to be denied, and reports
// whether it did. It sends no request. Of a denial that is due to be asked for again, it
// tells nothing to one caller. That one asks for the other keys and then for this one.
func (s *Store) Known(r *backend.Request, d *backend.Decision) bool {
	now := s.cache.Now()
	e := s.cache.At(r.Key).find(&r.Group, now, s.ttl)
	//mutant:known-leaves-refresh
	refresh := e != nil && e.due(now, s.ttl) && e.sent.CompareAndSwap(false, true)
	if e == nil || refresh || s.cache.store.Closed.Load() {
		return false
	}
	s.answer(e, r, d, now)
	return true
}

// answer denies a request by a cached denial, and counts that.
func (s *Store) answer(e *entry, r *backend.Request, d *backend.Decision, now time.Duration) {
	if e.asking(now) {
		s.yield(now)
	}
	s.answered.Add(1)
	e.answered.Add(1)
	e.Answer(&r.Group, leastOf(r), d, now)
}

// Ask returns what Note needs of the instant before a key is asked for beside others, in
// one request.
func (s *Store) Ask(key string) Visit {
	at := s.cache.At(key)
	return Visit{at: at, generation: at.Generation(), sent: s.cache.Now()}
}

// Visit is what the cache keeps of a request while next decides it.
type Visit struct {
	at         Set // of the request's key; zero where the answer changes nothing
	sent       time.Duration
	generation uint64
	answered   bool // from memory
}

// enter answers the request from the cached denials of its key, if one holds. A call that
// would pass waits for no other one: calls of one key that ask at once merge into one
// batch below.
func (s *Store) enter(ctx context.Context, r *backend.Request, d *backend.Decision) (v Visit) {
	if !r.Op.Known() || s.ttl == 0 || len(r.And) > 0 {
		return v
	}
	least := leastOf(r)
	v.at = s.cache.At(r.Key)
	v.generation, v.sent = v.at.Generation(), s.cache.Now()
	switch e := v.at.find(least, v.sent, s.ttl); {
	case e == nil:
	//mutant:errors-before-denials
	case r.Check(ctx, s.next.Capabilities()) != nil || s.cache.store.Closed.Load():
		return Visit{} // next returns the error
	//mutant:one-refresh
	case e.due(v.sent, s.ttl) && e.refreshing.CompareAndSwap(false, true):
	default:
		s.answer(e, r, d, v.sent)
		v.answered = true
	}
	return v
}

// Note notes what the store answered. A Reset ends the denials of its key, and may have
// taken effect though it has failed. So does a settlement that the store has counted and
// that gave something back. A call that passes ends the denials that would have
// denied it: another process may have changed the key. Of several keys in one request it
// receives a denial by its own, or that all pass.
func (s *Store) Note(v *Visit, r *backend.Request, d *backend.Decision, err error) {
	least := leastOf(r)
	switch {
	//mutant:forget-after-reset
	case r.Op == backend.Reset || r.Op.Ends() && err == nil && givesBack(r.Lease, &r.Group):
		s.cache.Forget(r.Key)
	case v.at.line == nil:
	//mutant:denials-of-store
	case err != nil || d.Source != backend.FromStore || d.Err != nil:
	case d.Allowed:
		//mutant:passed-ends-denial
		v.at.passed(least, d.Granted, v.sent, s.cache)
	//mutant:spread-denial-noted-once
	case r.Policies[0].Shards > 1: // package shard has noted it, with all policies that bind a share
	case cacheable(&r.Group, d):
		states := r.Each
		if states == nil {
			states = []backend.State{d.State}
		}
		v.at.Note(least, NewDenial(least, states, v.sent, s.cache.Now()), v.generation)
	}
}

// givesBack reports whether a counted settlement gives units back. The costs of g are the
// estimates. Slots and shadows deny nothing that is cached.
func givesBack(l *backend.Lease, g *backend.Group) bool {
	for i := range g.Policies {
		switch p := &g.Policies[i]; {
		//mutant:slots-give-nothing-back
		case p.Shadow || p.Algorithm.Kind().Leased():
		//mutant:estimate-gives-nothing-back
		case g.Costs == nil || l.ActualOf(g.Policies, i) < g.CostOf(i):
			return true
		}
	}
	return false
}

// leastOf returns the group with the least that it asks for. An AtMost is denied where
// there is no room for one unit.
func leastOf(r *backend.Request) *backend.Group {
	//mutant:at-most-of-one
	if !r.Op.UpTo() {
		return &r.Group
	}
	one := r.Group
	one.Cost, one.Costs = 1, nil
	return &one
}
