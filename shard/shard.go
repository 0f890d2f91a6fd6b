// Package shard spreads a hot key over sub-keys, as many as Policy.Shards says,
// each in its own slot, so that no one node decides all of its calls.
//
// The limits of the sub-keys, its shares, sum to the key's limit exactly, and a
// share never passes more than its own. So a key never passes more than its limit.
// A call takes from one share. The calls of one process use the same share for some
// milliseconds, so that they still merge into batches, and then the next one. A
// call that finds its share spent reads all shares that may have room and takes
// from one that has. It is denied when none has.
//
// Policies with different numbers of Shards count separately. While a deploy
// changes the number, the old and the new processes together pass at most the sum
// of their limits.
package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// MaxShards is the maximum number of sub-keys.
const MaxShards = 1024

// Store is a backend.Store over another. It answers as next does where a key
// is not spread. Safe for concurrent use.
//
// It stands below the deny cache, which answers for the whole key, and above the
// breaker, which applies the failure mode of the share that could not be asked.
type Store struct {
	next     backend.Store
	shared   *layer.Shared  // of the store at the end of next's
	fallback layer.Fallback // next, where it applies failure modes; else nil
	// attempt asks next without its failure modes: another share may have room.
	attempt func(context.Context, *backend.Request, *backend.Decision) error
	memory  func() *memory // made when the first key is spread
	stats   struct{ sums, seconds, wrong atomic.Int64 }
}

// Stats counts the calls whose first sub-key was spent, since the wrapper was made.
type Stats struct {
	Sums         int64 // reads of all sub-keys that may have room; concurrent calls share one
	SecondTries  int64 // takes that lost the race for the room that a sum had shown, and tried once more
	WrongDenials int64 // calls that lost that race too, and were denied while the sum may have had room
}

// New returns the wrapper over next. store is the one at the end of next's: all
// wrappers on it share what they remember of a key.
func New(next, store backend.Store) *Store {
	s := &Store{next: next, shared: layer.Of(store)}
	if s.shared == nil {
		s.shared = &layer.Shared{}
	}
	s.attempt = next.Do
	if s.fallback, _ = next.(layer.Fallback); s.fallback != nil {
		s.attempt = s.fallback.Attempt
	}
	s.memory = sync.OnceValue(func() *memory {
		type key struct{}
		denials := denial.Of(s.shared)
		return s.shared.Value(key{}, func() any { return newMemory(denials) }).(*memory)
	})
	return s
}

// Stats returns what was counted up to now.
func (s *Store) Stats() Stats {
	return Stats{s.stats.sums.Load(), s.stats.seconds.Load(), s.stats.wrong.Load()}
}

// Do decides one request. One that names a sub-key already goes on as it is.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	switch {
	case len(r.And) > 0:
		return s.keys(ctx, r, d)
	case len(r.Policies) == 0 || r.Policies[0].Shards < 2:
		return s.next.Do(ctx, r, d)
	case r.Sub != "":
		return s.settle(ctx, r, d)
	}
	err := r.Check(ctx, s.next.Capabilities()) // mutant: cost-of-whole-limit
	if err == nil {
		err = spreads(r)
	}
	if err != nil {
		return err
	}
	// The call escapes through the store's interface, so it is pooled. It is cleared
	// after use, or it would keep the caller's key and buffers.
	c := calls.Get().(*call)
	c.s, c.r, c.d = s, r, d
	err = c.decide(ctx)
	*c = call{} // mutant: call-on-shards-cleared
	calls.Put(c)
	return err
}

// keys passes on a request of several keys, of which none is spread: no one node could
// decide them at once.
func (s *Store) keys(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	for i := range 1 + len(r.And) {
		if g := r.GroupAt(i); len(g.Policies) > 0 && g.Policies[0].Shards > 1 { // mutant: spread-keys-apart
			return fmt.Errorf("%w: a %v of several keys, of which one is spread", backend.ErrUnsupported, r.Op)
		}
	}
	return s.next.Do(ctx, r, d)
}

// decide finds what is remembered of the key, and decides by operation.
func (c *call) decide(ctx context.Context) error {
	m := c.s.memory()
	c.generation, c.from = m.denials.At(c.r.Key).Generation(), m.denials.Now() // before the key is found: see forget
	switch c.k = m.find(c.r.Key, c.r.Policies); c.r.Op {
	case backend.Reset:
		return c.reset(ctx, m)
	case backend.Record:
		return c.record(ctx)
	case backend.Peek:
		return c.peek(ctx)
	}
	return c.take(ctx)
}

// spreads refuses what can't be asked of a spread key as a whole. The lease of a
// reservation lies with one sub-key, which its receipt names. A call takes from one
// share, so its cost must fit in the first, which is the smallest.
func spreads(r *backend.Request) error {
	switch r.Op {
	case backend.Record, backend.Reset:
		return nil
	case backend.AtMost:
		return fmt.Errorf("%w: an %v of a spread key", backend.ErrUnsupported, r.Op)
	case backend.Settle, backend.Extend:
		want := fmt.Sprintf("the one that was reserved, for the %v of a spread key", r.Op)
		return &backend.InvalidError{What: "sub-key", Value: r.Sub, Want: want}
	}
	for j := range r.Policies {
		p := &r.Policies[j]
		if n, least := r.CostOf(j), share(p, 0); n > least { // mutant: cost-above-share
			want := fmt.Sprintf("at most %d, the smallest of the %d shares of policy %q", least, p.Shards, p.Name)
			return backend.Wrap(backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n, Want: want})
		}
	}
	return nil
}

// DoAll decides each of the requests as Do would, those on keys that are not spread in
// one batch; see layer.Batcher. It applies no failure mode to shadow policies: their
// error is the answer.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []layer.Answer) {
	for i := range rs {
		if len(rs[i].Policies) == 0 || rs[i].Policies[0].Shards > 1 { // mutant: spread-not-batched
			for i := range rs {
				answers[i].Err = s.Do(ctx, &rs[i], &answers[i].Decision)
			}
			return
		}
	}
	layer.DoAll(ctx, s.next, rs, answers)
	for i := range rs {
		if a := &answers[i]; a.Err != nil && s.fallback != nil && !rs[i].Policies[0].Shadow {
			a.Err = s.fallback.Fail(ctx, &rs[i], &a.Decision, a.Err)
		}
	}
}

// CheckRequest refuses what Do refuses before it asks next.
func (s *Store) CheckRequest(ctx context.Context, r *backend.Request) error {
	if err := r.Check(ctx, s.next.Capabilities()); err != nil || r.Policies[0].Shards < 2 {
		return err
	}
	return spreads(r)
}

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next.
func (s *Store) Close() error {
	defer s.shared.Closed.Store(true) // for a store of another author; one of ours has done it
	return s.next.Close()
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }

// Check asks next, and refuses a number of shards that can't be kept.
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
	most := max(1, min(MaxShards, p.Algorithm.Max(), p.Algorithm.Limit().Events))
	bad := func(want string, args ...any) error {
		want = fmt.Sprintf(want, args...)
		return &backend.InvalidError{What: "shards of policy " + p.Name, Value: p.Shards, Want: want}
	}
	switch k := int64(p.Shards); {
	case k < 0 || k > most:
		return bad("0 to %d: at most %d, the limit and the burst", most, MaxShards)
	case max(p.Shards, 1) != max(first.Shards, 1): // mutant: one-number-of-shares
		return bad("%d, as policy %s has: all policies of a list lie together", first.Shards, first.Name)
	case k >= 2 && p.Algorithm.Kind().Leased():
		return bad("0: slots of %v are not spread", &p.Algorithm)
	case k >= 2:
		if part := p.Algorithm.Part(0, k); part.Check() != nil {
			return backend.Wrap(fmt.Errorf("headgate: policy %q in %d shards", p.Name, k), part.Check())
		}
	}
	return nil
}
