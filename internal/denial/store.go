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
	"math"
	"slices"
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

// Answered returns how many calls the wrapper answered itself.
func (s *Store) Answered() int64 { return s.answered.Load() }

// Next returns the store below.
func (s *Store) Next() backend.Store { return s.next }

// Do decides one request: from memory where it can.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	if r.First() {
		return s.first(ctx, r, d)
	}
	var one [1]visit
	vs := one[:]
	if len(r.And) > 0 {
		vs = make([]visit, 1+len(r.And))
	}
	if !s.enter(ctx, r, d, vs) {
		err = s.next.Do(ctx, r, d)
		note(vs, r, d, err)
	}
	return err
}

// visit is what the cache keeps of one group of a request while next decides it.
type visit struct {
	store      *Store // of the group's limiter; nil: a denial is not noted
	at         Set    // of the group's key
	sent       time.Duration
	generation uint64
	known      *entry // that denies the group
	firm       bool   // one that counted lent units does not
}

// begin notes the instant before a request with the group is sent.
func (v *visit) begin(s *Store, g *backend.Group) {
	v.store, v.at = s, s.cache.At(g.Key)
	v.generation, v.sent = v.at.Generation(), s.cache.Now()
}

// find notes the denial that holds for a group of the request. The process may have units that
// a denial counted as lent. Then the request needs no store.
func (v *visit) find(r *backend.Request, g *backend.Group) {
	v.known = v.at.find(g, v.sent, v.store.ttl)
	//mutant:lent-denial-asked
	if v.known != nil && v.known.lent && (v.firm || Needs(r) < v.known.needs) {
		v.known = nil
	}
}

// due reports whether the denial is to be asked for again, and no other call does.
func (v *visit) due() bool { return v.known.due(v.sent, v.store.ttl) && !v.known.refreshing.Load() }

// enter answers the request from the cached denials of its keys, if one holds, and reports
// whether it did. A call that would pass waits for no other one: calls of one key that ask at
// once merge into one batch below.
func (s *Store) enter(ctx context.Context, r *backend.Request, d *backend.Decision, vs []visit) bool {
	//mutant:held-is-not-denied
	if !r.Op.Known() || r.Lease != nil && r.Lease.Named { // which may be held already
		return false
	}
	some, sure := false, false
	for i := range vs {
		v, g := &vs[i], r.GroupAt(i)
		own, ok := layer.Own(g, s)
		if !ok || own.ttl == 0 {
			continue
		}
		v.begin(own, g)
		if v.find(r, g); v.known != nil {
			some, sure = true, sure || !v.due()
		}
	}
	//mutant:errors-before-denials
	if !some || r.Check(ctx, s.next.Capabilities()) != nil {
		return false // next returns the error
	}
	answers := false
	for i := range vs {
		v := &vs[i]
		//mutant:known-leaves-refresh
		if v.known != nil && !sure && // else no request is sent that could refresh it
			//mutant:one-refresh
			v.due() && v.known.refreshing.CompareAndSwap(false, true) {
			v.known = nil
		}
		answers = answers || v.known != nil && !v.store.cache.store.Closed.Load()
	}
	if answers {
		answer(vs, r, d)
	}
	return answers
}

// answer denies the request by the cached denials of its keys, of which there is one.
func answer(vs []visit, r *backend.Request, d *backend.Decision) {
	if len(vs) == 1 {
		vs[0].answer(r.Op, &r.Group, d)
		return
	}
	all := make([]layer.Verdict, len(vs))
	for i := range vs {
		if vs[i].known != nil {
			all[i].Made = true
			vs[i].answer(r.Op, r.GroupAt(i), &all[i].Decision)
		}
	}
	layer.Bind(r, all, d)
}

// answer denies a group by its cached denial, and counts that.
func (v *visit) answer(op backend.Op, g *backend.Group, d *backend.Decision) {
	if v.known.asking(v.sent) {
		v.store.yield(v.sent)
	}
	v.store.answered.Add(1)
	v.known.Answer(g, d, v.sent)
}

// note notes a denial of the store: it is that of the group that binds.
func note(vs []visit, r *backend.Request, d *backend.Decision, err error) {
	//mutant:denials-of-store
	if err != nil || d.Allowed && d.NextAfter == 0 || d.Source != backend.FromStore || d.Err != nil {
		return
	}
	next := d.State // of a run that passed in part: of the next call
	next.RetryAfter = max(d.RetryAfter, d.NextAfter)
	vs[d.At].note(r, d.At, &next)
}

// Needs returns how many local units would have decided the request without its store. If
// local units decide no such request, it is more than there can be.
func Needs(r *backend.Request) int64 {
	unequal := slices.ContainsFunc(r.Costs, func(n int64) bool { return n != r.Costs[0] })
	//mutant:sent-beside-local-units
	if unequal || r.Op != backend.Take || r.Borrow == 0 || r.Else || len(r.And) > 0 {
		return math.MaxInt64
	}
	return r.Charged(0, r.Run)
}

// note notes a denial of the i-th group of a request by the state that binds.
func (v *visit) note(r *backend.Request, i int, next *backend.State) {
	g := r.GroupAt(i)
	switch {
	//mutant:spread-denial-noted-once
	case v.store == nil || g.Shards > 1: // package shard has noted it, with all policies that bind a share
	case cacheable(g, next):
		states := g.Each
		if states == nil {
			states = []backend.State{*next}
		}
		v.at.Note(g, NewDenial(g, states, v.sent, v.store.cache.Now()), Needs(r), v.generation)
	}
}

// givesBack reports whether a counted settlement gives units back. The costs of g are the
// estimates. Under an ID of the caller's they may be others. Slots and shadows deny nothing that
// is cached.
func givesBack(g *backend.Group) bool {
	for i, p := range backend.Enforced(g.Policies) {
		//mutant:estimate-gives-nothing-back
		if !p.Algorithm.Kind().Leased() && (g.Costs == nil || g.Lease.Named || g.Lease.ActualOf(g.Policies, i) < g.CostOf(i)) {
			return true
		}
	}
	return false
}
