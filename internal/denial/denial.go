// Package denial is the deny cache: it answers a call whose key is known to be
// denied, from this process, so that a flood on a spent key costs its store
// about one call a second.
//
// What it says is at most a second old. So what another process does to a key
// meanwhile (a reset, a refund, a raised limit) shows within that second; what
// this process does shows at once.
package denial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Longest is how long an answer stands at most, and does where nothing else
// is said.
const Longest = time.Second

// Store is a backend.Store over another. It answers as next does, and a Take
// that next would deny again without asking it. Safe for concurrent use.
type Store struct {
	next  backend.Store
	fails backend.Failer // next, where it applies failure modes; else nil
	cache *cache
	stand time.Duration // how long an answer stands; 0: none does
	said  atomic.Int64
}

// New returns the station over next. All stations on one store, which is the
// one at the end of next's, share its cache. An answer stands for d at most;
// one of 0 and below answers nothing, but what it resets the others forget.
func New(next backend.Store, store backend.Hubbed, d time.Duration) *Store {
	s := &Store{next: next, cache: of(store), stand: max(0, min(d, Longest))}
	s.fails, _ = next.(backend.Failer)
	return s
}

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Close closes next and forgets what was known.
func (s *Store) Close() error {
	s.cache.close()
	return s.next.Close()
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) {
	if p, ok := s.next.(backend.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil, nil
}

// Answered returns how many calls the station answered itself.
func (s *Store) Answered() int64 { return s.said.Load() }

// Do decides one request. Only a Take is answered from what is known; a Peek
// asks for the truth; whatever else may change the key, so it is forgotten.
func (s *Store) Do(ctx context.Context, r backend.Request) (backend.Decision, error) {
	switch {
	case r.Op == backend.Peek:
		return s.next.Do(ctx, r)
	case r.Op != backend.Take || len(r.And) > 0:
		return s.change(ctx, r)
	case s.stand == 0:
		return s.next.Do(ctx, r)
	}
	at := s.cache.place(r.Key)
	if at.known.Load() == 0 {
		return s.ask(ctx, &r, at, s.cache.now())
	}
	return s.recall(ctx, &r, at)
}

// change forgets the key before the request and after it: a denial that comes
// in between may be from before.
func (s *Store) change(ctx context.Context, r backend.Request) (backend.Decision, error) {
	s.forget(&r)
	defer s.forget(&r)
	return s.next.Do(ctx, r)
}

func (s *Store) forget(r *backend.Request) {
	s.cache.forget(r.Key)
	for i := range r.And {
		s.cache.forget(r.And[i].Key)
	}
}

// recall answers by what is known of the key, where that is something.
func (s *Store) recall(ctx context.Context, r *backend.Request, at place) (backend.Decision, error) {
	waited := time.Duration(0)
	for {
		if r.Check(ctx) != nil || s.cache.closed() {
			return s.next.Do(ctx, *r) // which words the error
		}
		now := s.cache.now()
		e, f, leads := at.meet(r, now, s.stand)
		switch {
		case leads:
			return s.within(ctx, r, waited, func(ctx context.Context) (backend.Decision, error) { return s.lead(ctx, r, at, now, e, f) })
		case e != nil && f == nil:
			s.said.Add(1)
			return e.answer(&r.Group, now), nil
		case f == nil || waited > s.cache.patience():
			return s.within(ctx, r, waited, func(ctx context.Context) (backend.Decision, error) { return s.ask(ctx, r, at, now) })
		}
		if err := f.wait(ctx); err != nil {
			return backend.Decision{}, err
		}
		waited += f.took
		if f.failed != nil && s.fails != nil && waited > s.cache.patience() {
			return s.fail(ctx, r, f.failed)
		}
	}
}

// within asks in what a call that has waited has left of the store's budget.
func (s *Store) within(ctx context.Context, r *backend.Request, waited time.Duration, ask func(context.Context) (backend.Decision, error)) (backend.Decision, error) {
	if waited == 0 {
		return ask(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, s.cache.budget-waited)
	defer cancel()
	d, err := ask(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && s.fails != nil {
		return s.fail(ctx, r, err)
	}
	return d, err
}

// fail decides a call that spent its time waiting for one that failed. To ask
// for itself now could take it past the budget.
func (s *Store) fail(ctx context.Context, r *backend.Request, err error) (backend.Decision, error) {
	err = fmt.Errorf("%w: waited for a call that failed: %v", backend.ErrUnavailable, err)
	r.Unknown(err)
	return s.fails.Fail(ctx, *r, err)
}

// lead asks for all who wait in f.
func (s *Store) lead(ctx context.Context, r *backend.Request, at place, now time.Duration, e *entry, f *flight) (d backend.Decision, err error) {
	came, begin := false, time.Now() // it never comes if next panics, or ends the goroutine
	defer func() {
		f.took = time.Since(begin)
		if came && ctx.Err() == nil { // an impatient caller's failure says nothing of the store
			f.failed = failure(&d, err)
		}
		passed, room := came && err == nil && d.Allowed && d.Source == backend.FromStore, int64(0)
		if passed {
			room = more(&r.Group, &d)
		}
		at.land(r.Key, e, f, passed, room)
	}()
	d, err = s.ask(ctx, r, at, now)
	came = true
	return d, err
}

// failure is why no store decided, nil where one did or the call was wrong.
func failure(d *backend.Decision, err error) error {
	if err == nil {
		return d.Err
	}
	if backend.Undecided(err) {
		return err
	}
	return nil
}

// more returns how many calls of g's cost would pass after one that did, going
// by the policy that binds: no fewer than do.
func more(g *backend.Group, d *backend.Decision) int64 {
	for i := range g.Policies {
		if g.Policies[i].Name == d.Policy {
			return d.Remaining / g.CostOf(i)
		}
	}
	return 0
}

// rooms are for the states of calls that want none: an entry needs them for
// the calls that do.
var rooms = sync.Pool{New: func() any { return new([backend.MaxPolicies]backend.State) }}

// ask asks next and notes a denial.
func (s *Store) ask(ctx context.Context, r *backend.Request, at place, now time.Duration) (backend.Decision, error) {
	n := len(r.Policies)
	if r.Each != nil || n < 2 || n > backend.MaxPolicies {
		return s.send(ctx, r, at, now)
	}
	room := rooms.Get().(*[backend.MaxPolicies]backend.State)
	r.Each = room[:n]
	d, err := s.send(ctx, r, at, now)
	r.Each = nil
	rooms.Put(room)
	return d, err
}

// send counts an entry's time from before the request was sent, so that it
// lapses at the latest when the store would let the call pass.
func (s *Store) send(ctx context.Context, r *backend.Request, at place, sent time.Duration) (backend.Decision, error) {
	generation := at.generation.Load()
	d, err := s.next.Do(ctx, *r)
	if err == nil && !d.Allowed && d.Source == backend.FromStore && d.Err == nil && d.RetryAfter > 0 {
		s.cache.note(at, generation, &r.Group, &d, sent)
	}
	return d, err
}
