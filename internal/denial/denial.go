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
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	switch {
	case r.Op == backend.Peek:
		return s.next.Do(ctx, r, d)
	case r.Op != backend.Take || len(r.And) > 0:
		return s.change(ctx, r, d)
	case s.stand == 0:
		return s.next.Do(ctx, r, d)
	}
	at := s.cache.place(r.Key)
	if at.known.Load() == 0 {
		return s.ask(ctx, r, d, at, s.cache.now())
	}
	return s.recall(ctx, r, d, at)
}

// change forgets the key before the request and after it: a denial that comes
// in between may be from before.
func (s *Store) change(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	s.forget(r)
	defer s.forget(r)
	return s.next.Do(ctx, r, d)
}

func (s *Store) forget(r *backend.Request) {
	s.cache.forget(r.Key)
	for i := range r.And {
		s.cache.forget(r.And[i].Key)
	}
}

// recall answers by what is known of the key, where that is something.
func (s *Store) recall(ctx context.Context, r *backend.Request, d *backend.Decision, at place) error {
	waited := time.Duration(0)
	for {
		if r.Check(ctx) != nil || s.cache.closed() {
			return s.next.Do(ctx, r, d) // which words the error
		}
		now := s.cache.now()
		e, f, leads := at.meet(r, now, s.stand)
		switch {
		case leads:
			return s.within(ctx, r, d, waited, func(ctx context.Context) error { return s.lead(ctx, r, d, at, now, e, f) })
		case e != nil && f == nil:
			s.said.Add(1)
			e.answer(&r.Group, d, now)
			return nil
		case f == nil || waited > s.cache.patience():
			return s.within(ctx, r, d, waited, func(ctx context.Context) error { return s.ask(ctx, r, d, at, now) })
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
		waited += f.took
		if f.failed != nil && s.fails != nil && waited > s.cache.patience() {
			return s.fail(ctx, r, d, f.failed)
		}
	}
}

// within asks in what a call that has waited has left of the store's budget.
func (s *Store) within(ctx context.Context, r *backend.Request, d *backend.Decision, waited time.Duration, ask func(context.Context) error) error {
	if waited == 0 {
		return ask(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, s.cache.budget-waited)
	defer cancel()
	err := ask(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && s.fails != nil {
		return s.fail(ctx, r, d, err)
	}
	return err
}

// fail decides a call that spent its time waiting for one that failed. To ask
// for itself now could take it past the budget.
func (s *Store) fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error) error {
	if !errors.Is(err, backend.ErrUnavailable) { // the call that failed was perhaps counted; this one was not sent
		err = backend.Wrap(backend.ErrUnavailable, errors.New("waited for a call that failed: "+err.Error()))
	}
	r.Unknown(err)
	return s.fails.Fail(ctx, r, d, err)
}

// lead asks for all who wait in f.
func (s *Store) lead(ctx context.Context, r *backend.Request, d *backend.Decision, at place, now time.Duration, e *entry, f *flight) (err error) {
	came, begin := false, time.Now() // it never comes if next panics, or ends the goroutine
	defer func() {
		f.took = time.Since(begin)
		if came && ctx.Err() == nil { // an impatient caller's failure says nothing of the store
			f.failed = failure(d, err)
		}
		passed, room := came && err == nil && d.Allowed && d.Source == backend.FromStore, int64(0)
		if passed {
			room = more(&r.Group, d)
		}
		at.land(r.Key, e, f, passed, room)
	}()
	err = s.ask(ctx, r, d, at, now)
	came = true
	return err
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

// room is for the states of a call that wants none, and for the request that
// asks for them: an entry needs them for the calls that do.
type room struct {
	request backend.Request
	each    [backend.MaxPolicies]backend.State
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// ask asks next and notes a denial.
func (s *Store) ask(ctx context.Context, r *backend.Request, d *backend.Decision, at place, now time.Duration) error {
	n := len(r.Policies)
	if r.Each != nil || n < 2 || n > backend.MaxPolicies {
		return s.send(ctx, r, d, at, now)
	}
	own := rooms.Get().(*room)
	own.request = *r
	own.request.Each = own.each[:n]
	err := s.send(ctx, &own.request, d, at, now)
	own.request = backend.Request{} // or the key would be kept
	rooms.Put(own)
	return err
}

// send counts an entry's time from before the request was sent, so that it
// lapses at the latest when the store would let the call pass.
func (s *Store) send(ctx context.Context, r *backend.Request, d *backend.Decision, at place, sent time.Duration) error {
	generation := at.generation.Load()
	err := s.next.Do(ctx, r, d)
	if err == nil && !d.Allowed && d.Source == backend.FromStore && d.Err == nil && d.RetryAfter > 0 {
		s.cache.note(at, generation, &r.Group, d, sent)
	}
	return err
}
