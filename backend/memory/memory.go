// Package memory keeps the counts in this process: for tests, and for limits
// that one process enforces alone.
//
// Every decision is exact. Nothing is shared with other processes, and
// nothing outlives this one.
package memory

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Options are the settings of a Store. The zero Options, like nil, are the
// defaults.
type Options struct {
	// MaxKeys is how many counts are kept at most, one for each policy of
	// each key; 1,000,000 where it is 0 (calls of one instant may pass that
	// by 255). When as many are in use, new keys
	// share one count a policy: nobody's count is thrown out to make room,
	// since that would hand out a fresh quota.
	MaxKeys int
	// Now is the clock; nil is the system's, read in a way that steps of the
	// wall clock don't reach. It is called while a lock is held: it must be
	// quick, safe for concurrent use, and must not call the store. Times
	// before 1970 count as 1970.
	Now func() time.Time
}

// DefaultMaxKeys is how many counts are kept where Options name no number.
const DefaultMaxKeys = 1_000_000

// Store is a backend.Store in this process. Make one with New; it is safe for
// concurrent use and starts no goroutine.
type Store struct {
	seed    maphash.Seed // secret: with a known hash an attacker fills one stripe
	now     func() int64
	most    int64
	err     error // what was wrong with the arguments of New; Check says it
	kept    atomic.Int64
	closed  atomic.Bool
	hand    atomic.Uint32 // the stripe that was swept last in passing
	stripes [256]stripe
	spill   overflow
}

// New returns an empty store. What is wrong with the options, Check and
// headgate.New say.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{seed: maphash.MakeSeed(), now: clock(opts.Now), most: int64(opts.MaxKeys)}
	if s.most == 0 {
		s.most = DefaultMaxKeys
	}
	if s.most < 0 {
		s.err = &backend.InvalidError{What: "MaxKeys", Value: opts.MaxKeys, Want: "at least 1, or 0 for the default"}
	}
	return s
}

// clock returns microseconds of the Unix epoch. The default takes the wall
// clock once and counts on from there by the monotonic one.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return min(max(now().UnixMicro(), 0), 1<<52) }
	}
	begin := time.Now()
	epoch := begin.UnixMicro()
	return func() int64 { return epoch + time.Since(begin).Microseconds() }
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
func (s *Store) Do(ctx context.Context, r backend.Request) (backend.Decision, error) {
	if s.err != nil {
		return backend.Decision{}, s.err
	}
	if s.closed.Load() {
		return backend.Decision{}, backend.ErrClosed
	}
	if err := r.Check(ctx); err != nil {
		return backend.Decision{}, err
	}
	st := s.stripe(r.Key)
	st.mu.Lock()
	defer st.mu.Unlock()
	return s.decide(st, &r.Group, r.Op), nil
}

func (s *Store) stripe(key string) *stripe {
	return &s.stripes[maphash.String(s.seed, key)%uint64(len(s.stripes))]
}

// Len returns how many counts are kept now.
func (s *Store) Len() int { return int(s.kept.Load()) }

// Close makes every later request backend.ErrClosed.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
