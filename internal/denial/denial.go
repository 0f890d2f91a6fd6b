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
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Longest is how long an answer stands at most, and does where nothing else
// is said.
const Longest = time.Second

// Store is a backend.Store over another. It answers as next does, and a Take
// that next would deny again without asking it. Safe for concurrent use.
type Store struct {
	next  backend.Store
	cache *cache
	stand time.Duration // how long an answer stands; 0: none does
	said  atomic.Int64
}

// New returns the station over next. All stations on one store, which is the
// one at the end of next's, share its cache. An answer stands for d at most;
// one of 0 and below answers nothing, but what it resets the others forget.
func New(next backend.Store, store *layer.Shared, d time.Duration) *Store {
	return &Store{next: next, cache: of(store), stand: max(0, min(d, Longest))}
}

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next and forgets what was known.
func (s *Store) Close() error {
	defer s.cache.close()
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
	s.forget(r)       // mutant: forget-before-reset
	defer s.forget(r) // mutant: forget-after-reset
	return s.next.Do(ctx, r, d)
}

func (s *Store) forget(r *backend.Request) {
	s.cache.forget(r.Key)
	for i := range r.And {
		s.cache.forget(r.And[i].Key)
	}
}

// recall answers from the cached denials of the key, and asks next where none
// holds. A call that would pass waits for no other one: calls of one key that ask
// at once merge into one batch below.
func (s *Store) recall(ctx context.Context, r *backend.Request, d *backend.Decision, at place) error {
	for waited := false; ; waited = true {
		if r.Check(ctx, s.next.Capabilities()) != nil || s.cache.closed() { // mutant: errors-before-denials
			return s.next.Do(ctx, r, d) // which returns the error
		}
		now := s.cache.now()
		e, pending, leads := at.find(r, now, s.stand)
		switch {
		case leads:
			defer close(pending) // also if next panics
			return s.ask(ctx, r, d, at, now)
		case e == nil:
			return s.ask(ctx, r, d, at, now)
		case waited || pending == nil:
			s.said.Add(1)
			e.answer(&r.Group, d, now)
			return nil
		}
		await(ctx, pending) // mutant: wait-for-refresh
	}
}

// held is how long a denied call waits for the caller that refreshes the denial.
// The cached denial still holds then. Without the wait, a flood that is answered
// from memory takes the processor from that caller until its budget is spent.
const held = 10 * time.Millisecond

func await(ctx context.Context, pending chan struct{}) {
	timer := time.NewTimer(held)
	defer timer.Stop()
	select {
	case <-pending:
	case <-ctx.Done(): // mutant: wait-ends-with-context
	case <-timer.C: // mutant: wait-bounded
	}
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
	own.request = *r // mutant: request-not-changed
	own.request.Each = own.each[:n]
	err := s.send(ctx, &own.request, d, at, now)
	own.request = backend.Request{} // or the key would be kept; mutant: no-key-kept
	rooms.Put(own)
	return err
}

// send asks next. An entry's time counts from before the request was sent, so
// that the entry ends at the latest when the store would let the call pass. A call
// that passes ends the entries that would have denied it: another process may have
// changed the key.
func (s *Store) send(ctx context.Context, r *backend.Request, d *backend.Decision, at place, sent time.Duration) error {
	generation := at.generation.Load()
	err := s.next.Do(ctx, r, d)
	switch {
	case err != nil || d.Source != backend.FromStore || d.Err != nil: // mutant: denials-of-store
	case d.Allowed:
		at.passed(r) // mutant: passed-ends-denial
	case d.RetryAfter > 0:
		s.cache.note(at, generation, &r.Group, d, sent)
	}
	return err
}
