// Package memory keeps the counts in this process: for tests, and for limits
// that one process enforces alone.
//
// Every decision is exact. Nothing is shared with other processes, and
// nothing outlives this one. A key is shorter than 128 MiB.
package memory

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Options are the settings of a Store. The zero Options, like nil, are the
// defaults.
type Options struct {
	// MaxKeys is how many counts are kept at most, one for each policy of
	// each key; 1,000,000 where it is 0 (calls of one instant may pass that
	// by 255, and a call by its policies but one). When as many are in use, new keys
	// share one count a policy: nobody's count is thrown out to make room,
	// since that would hand out a fresh quota.
	MaxKeys int
	// Now is the clock; nil is the system's, read in a way that steps of the
	// wall clock don't reach. It is called while a lock is held: it must be
	// quick, safe for concurrent use, and must not call the store. Times
	// before 1970 count as 1970. A store that is to follow the clock of a
	// testing/synctest bubble has to be made in it.
	Now func() time.Time
}

// DefaultMaxKeys is how many counts are kept where Options name no number.
const DefaultMaxKeys = 1_000_000

// longest is the longest key: a record has so many bits for its length.
const (
	lenBits = 27
	longest = 1<<lenBits - 1
)

// Store is a backend.Store in this process. Make one with New; it is safe for
// concurrent use and starts no goroutine.
type Store struct {
	stripes [stripes]stripe // first: it begins on a cache line

	seed   maphash.Seed // secret: with a known hash an attacker fills one stripe
	clock  clock
	most   int64
	err    error // what was wrong with the arguments of New; Check says it
	closed atomic.Bool
	hub    backend.Hub

	_     [64]byte // what follows is written now and then, what precedes is not
	kept  atomic.Int64
	hand  atomic.Uint32 // the stripe that was swept last in passing
	idle  atomic.Bool   // something was found there that was as new
	spill overflow
}

const (
	stripes     = 256
	stripeShift = 64 - 8
)

// New returns an empty store. What is wrong with the options, Check and
// headgate.New say.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{seed: maphash.MakeSeed(), clock: newClock(opts.Now), most: int64(opts.MaxKeys)}
	for i := range s.stripes {
		s.stripes[i].mu.calls = uint(i) // so that they sweep in turn from the first calls on
	}
	if s.most == 0 {
		s.most = DefaultMaxKeys
	}
	if s.most < 0 {
		s.err = &backend.InvalidError{What: "MaxKeys", Value: opts.MaxKeys, Want: "at least 1, or 0 for the default"}
	}
	return s
}

// Check says whether the store could carry these policies, and whether New's
// options were right.
func (s *Store) Check(policies []backend.Policy) error {
	if s.err != nil {
		return s.err
	}
	return backend.CheckPolicies(policies)
}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if s.err != nil {
		return s.err
	}
	if s.closed.Load() {
		return backend.ErrClosed
	}
	if err := r.Check(ctx); err != nil {
		return err
	}
	if len(r.Key) > longest {
		return &backend.InvalidError{What: "key", Value: len(r.Key), Want: "less than 128 MiB"}
	}
	if r.Plain() {
		if h := s.hits(&r.Policies[0]); h.Take(ctx, r.Key, r.Cost, d) {
			return nil
		}
	}
	switch n := len(r.Policies); {
	case n == 1:
		var l [1]look
		var rs [1]backend.Reading
		s.decide(&r.Group, r.Op, l[:], rs[:], d)
	case n <= few:
		var ls [few]look
		var rs [few]backend.Reading
		s.decide(&r.Group, r.Op, ls[:n], rs[:n], d)
	default:
		s.decide(&r.Group, r.Op, make([]look, n), make([]backend.Reading, n), d)
	}
	return nil
}

// hash is of the key, and of the sub-key apart: all sub-keys of a hot key
// would else lie in one stripe.
func (s *Store) hash(g *backend.Group) uint64 {
	h := maphash.String(s.seed, g.Key)
	if g.Sub != "" {
		h = bits.RotateLeft64(h, 23) ^ maphash.String(s.seed, g.Sub)
	}
	return h
}

// Closed reports whether the store was closed.
func (s *Store) Closed() bool { return s.closed.Load() }

// Shared holds what limiters on this store know of it together.
func (s *Store) Shared() *backend.Hub { return &s.hub }

// Len returns how many counts are kept now.
func (s *Store) Len() int { return int(s.kept.Load()) }

// Close makes every later request backend.ErrClosed.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
