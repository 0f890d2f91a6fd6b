// Package joint decides a request of several keys that no one store decides at once: keys of
// a cluster, or of several stores. It passes any other request on.
//
// Only the first key is asked at first, since it is the narrowest, and then the others in parallel. Each
// is reserved under a lease of its own. What passed of a request that is denied is given back. A
// request that passes leaves its leases to end, unless its caller has asked for them. If the
// first key's failure mode denies the call, the others are only peeked at: a counted denial says
// more.
//
// Alternatives are decided one after the other.
package joint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/settlement"
)

// term is the length of the lease of a key that is only taken.
const term = 2 * time.Second

// Store is a backend.Store over another. Safe for concurrent use.
type Store struct {
	next       backend.Store
	fallback   layer.Fallback // the layer of the failure modes, below next
	store      backend.Store  // at the end of the layers
	shared     *layer.Shared  // of store
	cancelling settlement.Background
}

// New returns the layer over next. fallback is the layer of the failure modes below it, and
// store the one at the end.
func New(next backend.Store, fallback layer.Fallback, store backend.Store, cancelling settlement.Background) *Store {
	shared := cmp.Or(layer.Of(store), layer.Of(next), new(layer.Shared))
	return &Store{next: next, fallback: fallback, store: store, shared: shared, cancelling: cancelling}
}

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Capabilities returns those of next, and as many keys as a request may have.
func (s *Store) Capabilities() backend.Capabilities {
	c := s.next.Capabilities()
	if c.Ops.Has(backend.Reserve) {
		c.Keys = backend.MaxKeys
	}
	return c
}

// Close closes next.
func (s *Store) Close() error { return s.next.Close() }

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }

// Next returns the store below.
func (s *Store) Next() backend.Store { return s.next }

// Do decides one request, by the failure modes if no store does. If a Reserve is denied though
// it may have been charged, its leases are cancelled.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	begin, to := time.Time{}, s.next
	if len(r.And) > 0 {
		if !s.together(r) {
			return s.split(ctx, r, d, begin)
		}
		begin, to = time.Now(), s.fallback
	}
	err = s.pass(ctx, to, r, d)
	//mutant:all-split-asked-again
	if len(r.And) > 0 && errors.Is(err, backend.ErrUnavailable) && !s.together(r) { // the store has just learnt that it can't
		return s.split(ctx, r, d, begin)
	}
	return s.end(ctx, r, d, err)
}

// end decides by the failure modes what no store did. It cancels the leases of a Reserve that is
// denied though it may have been charged.
func (s *Store) end(ctx context.Context, r *backend.Request, d *backend.Decision, err error) error {
	if err != nil {
		err = s.fallback.Fail(ctx, r, d, err, nil)
	}
	//mutant:named-not-cancelled
	if !r.Op.Opens() || err != nil || r.Lease.Named && !d.Allowed { // its caller reserves and settles by its ID
		return err
	}
	var ps []*part // of a denied call
	for i := range 1 + len(r.And) {
		if r.GroupAt(i).Lease.Unresolved = d.Err != nil; !d.Allowed {
			p := s.part(r, i)
			p.asked, p.decision.Err = true, d.Err
			ps = append(ps, p)
		}
	}
	if !d.Allowed {
		ps[d.At].decision = *d
		giveBack(ps)
	}
	return nil
}

// pass passes a request on, and publishes what it changes.
func (s *Store) pass(ctx context.Context, to backend.Store, r *backend.Request, d *backend.Decision) (err error) {
	at := s.shared.Sending(r)
	defer func() { s.shared.Sent(r, d, at, err) }() // also if a layer panics
	return to.Do(ctx, r, d)
}

// DoAll decides requests of one key each as Do would, at once; see layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	var at time.Duration
	for i := range rs {
		at = s.shared.Sending(&rs[i])
	}
	layer.DoAll(ctx, s.next, rs, answers)
	for i := range rs {
		r, a := &rs[i], &answers[i]
		if s.shared.Sent(r, &a.Decision, at, a.Err); a.Err != nil {
			a.Err = s.fallback.Fail(ctx, r, &a.Decision, a.Err, nil)
		}
	}
}

// Shared returns what limiters on the store share.
func (s *Store) Shared() *layer.Shared { return s.shared }

// together reports whether one store decides all keys at once.
func (s *Store) together(r *backend.Request) bool {
	for i := range r.And {
		if own, _ := layer.Own(&r.And[i], s); !Same(own.store, s.store) {
			return false
		}
	}
	own, _ := layer.Own(&r.Group, s)
	return Same(own.store, s.store) && 1+len(r.And) <= s.store.Capabilities().Keys
}

// Same reports whether two stores are one.
func Same(a, b backend.Store) bool { return reflect.TypeOf(a).Comparable() && a == b }

// part is one key of a request. Its verdict is made when it was asked.
type part struct {
	backend.Request
	own       *Store // the layer of the key's own limiter
	decision  backend.Decision
	err       error
	asked     bool
	storeTime atomic.Int64
	lease     backend.Lease
}

// part returns the i-th key of the request.
func (s *Store) part(r *backend.Request, i int) *part {
	p := &part{Request: layer.Part(r, i)}
	p.own, _ = layer.Own(&p.Group, s)
	return p
}

// split decides what no store decides at once, within one budget that began at an instant; zero
// is now.
func (s *Store) split(ctx context.Context, r *backend.Request, d *backend.Decision, begin time.Time) error {
	if err := r.Check(ctx, s.Capabilities()); err != nil {
		return err
	}
	if r.Op.Ends() { // of alternatives that one store has decided, which refuses
		return s.pass(ctx, s.fallback, r, d)
	}
	bounded, cancel := s.bounded(ctx, r, begin)
	defer cancel()
	if r.First() {
		return s.first(ctx, bounded, r, d)
	}
	back, err := s.oneByOne(ctx, bounded, r, d, true)
	//mutant:wait-meets-itself
	if r.Again { // or the next take would be denied by what this one was charged
		<-back
	}
	return err
}

// oneByOne decides the keys one by one. Modes is whether a key that no store decides is decided by
// its failure modes. What it gives back is sent once back is closed.
func (s *Store) oneByOne(ctx, bounded context.Context, r *backend.Request, d *backend.Decision, modes bool) (back <-chan struct{}, err error) {
	ps := make([]*part, 1+len(r.And))
	for i := range ps {
		ps[i] = s.part(r, i)
		ps[i].reserve(r.StoreTime != nil)
	}
	first, others := ps[0], ps[1:]
	first.send(ctx, bounded, modes)
	if first.err == nil && (first.decision.Allowed || first.decision.Err != nil) {
		for _, p := range others {
			//mutant:all-first-failed-peeks
			if !first.decision.Allowed {
				p.Op, p.Lease = backend.Peek, nil
			}
		}
		layer.Parallel(len(others), func(i int) { others[i].send(ctx, bounded, modes) })
	}
	return s.conclude(ctx, ps, r, d)
}

// reserve makes a take one under a lease. A Reserve has its own.
func (p *part) reserve(timed bool) {
	if p.Op.Charges() && p.Lease == nil {
		p.lease.Length = term
		_, _ = rand.Read(p.lease.ID[:]) // never fails
		p.Op, p.Lease = backend.Reserve, &p.lease
	}
	if timed {
		p.StoreTime = &p.storeTime
	}
}

// bounded returns a context that ends with the greatest of the stores' budgets.
func (s *Store) bounded(ctx context.Context, r *backend.Request, begin time.Time) (context.Context, context.CancelFunc) {
	budget, spent := time.Duration(0), time.Duration(0)
	for i := range 1 + len(r.And) {
		own, _ := layer.Own(r.GroupAt(i), s)
		shared := layer.Of(own.store)
		if shared == nil || shared.Budget == 0 {
			return ctx, func() {}
		}
		budget = max(budget, shared.Budget)
	}
	//mutant:all-split-within-budget
	if !begin.IsZero() {
		spent = time.Since(begin)
	}
	return layer.Within(ctx, budget, budget-spent)
}

// send requests the key's decision. Where the call's own budget has ended, the failure modes
// decide.
func (p *part) send(ctx, bounded context.Context, modes bool) {
	p.asked, p.err = true, p.own.pass(bounded, p.own.next, &p.Request, &p.decision)
	//mutant:all-budget-ends
	if ended := layer.BudgetEnded(bounded, p.err); ended != nil {
		p.err = ended
	}
	if p.err != nil && modes {
		p.err = p.own.fallback.Fail(ctx, &p.Request, &p.decision, p.err, nil)
	}
}

// conclude writes the decision of the key that binds, or returns the first error. It gives
// back what was charged if the call did not pass. The time in the stores is that of the first
// key, and the longest of the others.
func (s *Store) conclude(ctx context.Context, ps []*part, r *backend.Request, d *backend.Decision) (back <-chan struct{}, err error) {
	all, longest, denied := make([]layer.Verdict, len(ps)), int64(0), false
	for i, p := range ps {
		all[i] = layer.Verdict{Decision: p.decision, Made: p.asked && p.err == nil}
		if i > 0 {
			longest = max(longest, p.storeTime.Load())
		}
		if denied = denied || all[i].Made && !p.decision.Allowed; err == nil || errors.Is(p.err, backend.ErrPerhapsCounted) {
			err = p.err
		}
		if p.Op.Opens() {
			p.Lease.Unresolved = p.decision.Err != nil || p.err != nil || !p.asked
		}
	}
	if r.StoreTime != nil {
		r.StoreTime.Add(ps[0].storeTime.Load() + longest)
	}
	switch {
	case err == nil || denied && backend.Undecided(err): // a counted denial of an alternative
		err = nil
		layer.Bind(r, all, d)
	case errors.Is(err, backend.ErrPerhapsCounted):
		err = s.fallback.Fail(ctx, r, d, err, nil)
	}
	if err == nil && d.Allowed {
		return nothing, nil
	}
	return giveBack(ps), err
}

// nothing is what is closed if nothing is given back.
var nothing = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// within waits until what is given back was sent, or until ctx ends.
func within(ctx context.Context, back <-chan struct{}) {
	select {
	case <-back:
	//mutant:next-alternative-within-budget
	case <-ctx.Done():
	}
}

// giveBack cancels the leases of a call that is denied, where its keys were charged or may have
// been, in the background. The channel is closed once each cancel was sent, and answered or not.
func giveBack(ps []*part) <-chan struct{} {
	back, open := make(chan struct{}), atomic.Int64{}
	sent := func() {
		if open.Add(-1) == 0 {
			close(back)
		}
	}
	open.Add(int64(len(ps)))
	for _, p := range ps {
		//mutant:all-denied-gives-back
		if p.charged() {
			p.giveBack(sync.OnceFunc(sent))
			continue
		}
		sent()
	}
	return back
}

// charged reports whether the key may have been charged, by its store or in this process.
func (p *part) charged() bool {
	d := &p.decision
	return p.asked && p.Op.Opens() && (p.err == nil && d.Allowed && d.Source != backend.FromFailOpen ||
		errors.Is(d.Err, backend.ErrPerhapsCounted) || errors.Is(p.err, backend.ErrPerhapsCounted))
}

// giveBack cancels the lease of the key in the background, and calls sent after the first try.
func (p *part) giveBack(sent func()) {
	cancel := p.cancel()
	try := func(ctx context.Context) error { defer sent(); return cancel(ctx) }
	//mutant:all-cancels-beyond-background
	if !p.own.cancelling.Cancel(p.Lease.Length, try) {
		_ = try(context.Background())
	}
}

// cancel returns what cancels the key's lease, any number of times.
func (p *part) cancel() func(context.Context) error {
	lease := *p.Lease
	_, _ = rand.Read(lease.Attempt[:]) // never fails
	own, g := p.own, backend.Group{Key: p.Key, Policies: p.Policies, Lease: &lease}
	//mutant:known-denial-stays
	if p.decision.Source == backend.FromDenyCache { // it gives back nothing of what that denial counts
		g.Costs = make([]int64, len(g.Policies))
	}
	return func(ctx context.Context) error {
		_, err := layer.Ask(ctx, own, backend.Request{Op: backend.Settle, Group: g})
		return err
	}
}
