// Package shard spreads a hot key over sub-keys, as many as Group.Shards says,
// each in its own slot. So no one node decides all of its calls.
//
// The limits of the sub-keys, its shares, sum to the key's limit exactly, and a
// share never passes more than its own. So a key never passes more than its limit.
// A call takes from one share. The calls of one process use the same share for some
// milliseconds, so that they still merge into batches, and then the next one. A
// call that finds its share spent reads all shares that may have room and takes
// from one that has. It is denied when none has.
//
// Lists with different numbers of Shards count separately. While a deploy
// changes the number, the old and the new processes together pass at most the sum
// of their limits.
package shard

import (
	"cmp"
	"context"
	"slices"
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
// It stands below the deny cache, which answers for the whole key. It stands above the
// breaker, which applies the failure mode of the share that could not be asked.
type Store struct {
	next   layer.Fallback   // which decides without failure modes: another share may have room
	shared *layer.Shared    // of the store at the end of next's
	keys   func() *keyCache // made when the first key is spread
	stats  struct{ sums, wrong atomic.Int64 }
}

// Stats counts the calls whose first sub-key was spent, since the wrapper was made.
type Stats struct {
	Sums         int64 // reads of all sub-keys that may have room; concurrent calls share one
	WrongDenials int64 // calls that lost the race for that room twice, and were denied while there may have been more
}

// Fallback is the store below: a breaker.Store. Its Do and DoAll decide without failure modes,
// since another share may have room, and Fail decides by them.
type Fallback interface{ layer.Fallback }

// New returns the wrapper over next. store is the one at the end of next's: all
// wrappers on it share what they remember of a key.
func New(next Fallback, store backend.Store) *Store {
	s := &Store{next: next, shared: cmp.Or(layer.Of(store), new(layer.Shared))}
	s.keys = sync.OnceValue(func() *keyCache {
		type key struct{}
		denials := denial.Of(s.shared)
		return s.shared.Value(key{}, func() any {
			m := &keyCache{denials: denials}
			s.shared.Subscribe(m.changed)
			return m
		}).(*keyCache)
	})
	return s
}

// Stats returns what was counted up to now.
func (s *Store) Stats() Stats { return Stats{s.stats.sums.Load(), s.stats.wrong.Load()} }

// spread reports whether a key of the request is spread.
func spread(r *backend.Request) bool {
	for i := range 1 + len(r.And) {
		if g := r.GroupAt(i); len(g.Policies) > 0 && g.Shards > 1 {
			return true
		}
	}
	return false
}

// Do decides one request. One that names a sub-key already goes on as it is.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if !spread(r) || r.Sub != "" && r.Op != backend.Borrow {
		return s.next.Do(ctx, r, d)
	}
	if err := s.CheckRequest(ctx, r); err != nil {
		return err
	}
	// The call escapes through the store's interface, so it is pooled. It is cleared
	// after use, or it would keep the caller's key and buffers.
	c := calls.Get().(*call)
	c.s, c.r, c.d = s, r, d
	err := c.decide(ctx)
	//mutant:call-on-shards-cleared
	*c = call{}
	calls.Put(c)
	return err
}

// decide finds what is remembered of the key, and decides by operation.
func (c *call) decide(ctx context.Context) error {
	m := c.s.keys()
	c.generation, c.from = m.denials.At(c.r.Key).Generation(), m.denials.Now() // before the key is found: see forget
	switch c.k = m.find(&c.r.Group); c.r.Op {
	case backend.Reset, backend.Peek:
		return c.askAll(ctx)
	case backend.Borrow:
		return c.borrow(ctx)
	}
	if c.r.UpTo {
		return c.upTo(ctx)
	}
	return c.take(ctx)
}

// DoAll decides each of the requests as Do would, in one batch if no key is spread, else at
// once: together they have one budget. See layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	var next backend.Store = s.next
	//mutant:spread-not-batched
	if slices.ContainsFunc(rs, func(r backend.Request) bool { return spread(&r) }) {
		next = struct{ backend.Store }{s} // which is no Batcher
	}
	layer.DoAll(ctx, next, rs, answers)
}

// Shared returns what limiters on the store share.
func (s *Store) Shared() *layer.Shared { return s.shared }

// Next returns the store below.
func (s *Store) Next() backend.Store { return s.next }

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next.
func (s *Store) Close() error {
	defer s.shared.Closed.Store(true) // for a store of another author; one of ours has done it
	return s.next.Close()
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }
