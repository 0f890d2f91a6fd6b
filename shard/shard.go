// Package shard is the station that spreads a hot key: over as many sub-keys
// as Policy.Shards says, each in a slot of its own, so that no one node decides
// all of its calls.
//
// The sub-keys' limits sum to the key's exactly, and a sub-key never passes
// more than its own, so the key never passes more than its limit. A call takes
// from one of them. Where that is spent the station asks for all, sums, and
// takes from where there is room, so that a share which others have used up
// denies nobody while there is room elsewhere.
//
// Limiters of another number of Shards count apart. Where a deploy changes it,
// the old and the new processes together pass at most the sum of their limits.
package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
)

// Most is over how many sub-keys a key can be spread.
const Most = 1024

// Store is a backend.Store over another. It answers as next does where a key
// is not spread. Safe for concurrent use.
type Store struct {
	next   backend.Store
	shared *layer.Shared  // of the store at the end of next's
	fails  layer.Fallback // next, where it applies failure modes; else nil
	own    atomic.Pointer[known]
	done   counters
}

type counters struct{ sums, seconds, wrong atomic.Int64 }

// Stats are what became of calls whose first sub-key was spent, since the
// station was made.
type Stats struct {
	Sums         int64 // rounds that asked all of a key's sub-keys not known to be spent; calls that need one at once share it
	SecondTries  int64 // takes that lost the race for what a sum had shown, and tried once more
	WrongDenials int64 // calls that lost that race too, and were denied while the sum may have had room
}

// New returns the station over next. store is the one at the end of next's: it
// tells the clock, and all stations on it share what is known of a key.
func New(next, store backend.Store) *Store {
	s := &Store{next: next, shared: layer.Of(store)}
	if s.shared == nil {
		s.shared = &layer.Shared{}
	}
	s.fails, _ = next.(layer.Fallback)
	return s
}

// known returns what is known of the keys on the store. It is made when the
// first key is spread.
func (s *Store) known() *known {
	if m := s.own.Load(); m != nil {
		return m
	}
	type key struct{}
	m := s.shared.Value(key{}, func() any { return newKnown(s.shared.Clock) }).(*known)
	s.own.CompareAndSwap(nil, m)
	return s.own.Load()
}

// Stats returns what was counted up to now.
func (s *Store) Stats() Stats {
	return Stats{s.done.sums.Load(), s.done.seconds.Load(), s.done.wrong.Load()}
}

// Do decides one request. One that names a sub-key already goes on as it is.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if len(r.Policies) == 0 || r.Policies[0].Shards < 2 || r.Sub != "" {
		return s.next.Do(ctx, r, d)
	}
	return s.spread(ctx, r, d)
}

func (s *Store) spread(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := r.Check(ctx, s.next.Capabilities()); err != nil { // mutant: cost-of-whole-limit
		return err
	}
	m := s.known()
	p := m.plan(r.Policies)
	if err := p.admits(r); err != nil {
		return err
	}
	c := calls.Get().(*call)
	c.s, c.m, c.r, c.d = s, m, r, d
	err := c.do(ctx, p)
	*c = call{} // mutant: call-on-shards-cleared
	calls.Put(c)
	return err
}

func (c *call) do(ctx context.Context, p *plan) error {
	switch c.r.Op {
	case backend.Take:
		c.e = c.m.find(c.r.Key, p)
		c.begin = time.Now()
		if c.from = c.begin.Sub(c.m.begin); c.m.clock != nil {
			c.from = c.m.now()
		}
		return c.take(ctx)
	case backend.Peek:
		c.e = c.m.find(c.r.Key, p)
		return c.peek(ctx)
	}
	return c.reset(ctx, p)
}

// Fail hands to next what who stands before this station could not decide.
func (s *Store) Fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error) error {
	if s.fails == nil {
		return err
	}
	return s.fails.Fail(ctx, r, d, err)
}

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next.
func (s *Store) Close() error {
	err := s.next.Close()
	s.shared.Closed.Store(true) // for a store of another author; one of ours has done it
	return err
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) {
	if p, ok := s.next.(backend.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil, nil
}

// Check asks next, and refuses a spread that can't be kept.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.next.Check(policies); err != nil {
		return err
	}
	for i := range policies {
		if err := checkShards(&policies[i], &policies[0]); err != nil {
			return err
		}
	}
	return nil
}

func checkShards(p, first *backend.Policy) error {
	most := max(1, min(Most, p.Algorithm.Max(), p.Algorithm.Limit().Events))
	bad := func(want string, args ...any) error {
		return &backend.InvalidError{What: "shards of policy " + p.Name, Value: p.Shards, Want: fmt.Sprintf(want, args...)}
	}
	switch k := int64(p.Shards); {
	case k < 0 || k > most:
		return bad("0 to %d: at most %d, the limit and the burst", most, Most)
	case max(p.Shards, 1) != max(first.Shards, 1): // mutant: one-number-of-shares
		return bad("%d, as policy %s has: all policies of a list lie together", first.Shards, first.Name)
	case k >= 2:
		part := p.Algorithm.Part(0, k)
		if err := part.Check(); err != nil {
			return backend.Wrap(fmt.Errorf("headgate: policy %q in %d shards", p.Name, k), err)
		}
	}
	return nil
}
