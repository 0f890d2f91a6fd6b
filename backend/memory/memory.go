// Package memory keeps the counts in this process: for tests, and for limits
// that one process enforces. With a File they survive a restart.
//
// Every decision is exact. Nothing is shared with other processes. A key is found by 64 bits of a secret hash.
// The chance that any two of a million keys share a count is 3 · 10^-8.
//
// A snapshot of a million keys has 29 to 31 MB, and takes 0.1 s of one core. Calls of a part wait
// for less than 1 ms meanwhile, but for keys with logs or leases of megabytes. New reads it in
// 0.2 s (go test ./backend/memory -run xxx -bench Save). Who has the file knows how keys are
// hashed, and can make keys that share a count with others: keep it as a password.
//
// A store of many keys has 256 parts. A Reset keeps the calls of its key's part
// waiting. That takes some 0.1 ms where the part holds 10,000 open leases, and 60 ms where it
// holds a million.
package memory

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// DefaultMaxKeys is the number of counts that a store keeps where Options
// give no number.
const DefaultMaxKeys = 1_000_000

// Options are the settings of a Store. The zero Options, like nil, are the
// defaults.
type Options struct {
	// MaxKeys is the maximum number of counts, one per policy of a key;
	// DefaultMaxKeys where it is 0. A count whose key is idle makes room for a
	// new one. Where none is idle, new keys share one count per policy. No count in use
	// is removed, since that would grant its key a fresh quota. Policies that name a class
	// (Policy.Class) keep at most as many counts as are free, and then share counts of their
	// own. Stats, an Event and a line of the Logger report it.
	MaxKeys int
	// Now is the clock; nil is the system's monotonic clock, which steps of the
	// wall clock do not change. Now is called while a lock is held: it must be
	// quick, safe for concurrent use, and must not call the store. Times before
	// 1970 count as 1970. A store that is to follow the clock of a
	// testing/synctest bubble has to be made in the bubble.
	Now func() time.Time

	// File is where the counts, leases and loans are kept while no process runs; "" is nowhere.
	// New reads it, and Close writes it. If the process ends without a Close, each key's counts are
	// those of one instant, at most Every and one write before. The time until the next New
	// has passed, by the wall clock. The file has mode 0600 and names no key. Beside it stand
	// a lock with ".lock" behind the name and, for the time of a write, the next one with ".new".
	File string
	// Every is the time between two writes of File; DefaultEvery where it is 0.
	Every time.Duration
	// OnBadFile is what New does if File is there and can't be used.
	OnBadFile BadFile
	// FileWait is for how long New waits for another store to close File, such as that of the
	// process which this one replaces. Then the file can't be used.
	FileWait time.Duration
}

// Store is a backend.Store in this process. Make one with New: every method of
// the zero Store that can return an error returns an *InvalidError. A Store is
// safe for concurrent use. It starts no goroutine but the one that writes its File, which Close
// ends.
type Store struct {
	stripes []stripe // nil in the zero Store
	secrets [secrets]secret
	clock   clock
	maxKeys int64
	err     error // New's arguments were wrong
	shared  layer.Shared
	classes *classes
	file    *file // nil: none

	_        [64]byte     // the fields above are read by every call, those below are written
	kept     atomic.Int64 // records in the stripes and room reserved for more
	next     atomic.Uint32
	overflow stripe // records without a key: see overflow.go
}

// New returns a store that is empty, or has the counts of its File. Check and headgate.New
// report what is wrong with the options or the file.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{secrets: newSecrets(), clock: newClock(opts.Now), maxKeys: int64(cmp.Or(opts.MaxKeys, DefaultMaxKeys))}
	if s.maxKeys < 0 {
		s.err = &backend.InvalidError{What: "MaxKeys", Value: opts.MaxKeys, Want: "at least 1, or 0 for the default"}
	}
	s.shared.Local, s.shared.Clock = true, opts.Now
	s.classes = newClasses()
	s.stripes = newStripes(s.maxKeys, s.classes)
	if opts.File != "" && s.err == nil {
		s.err = s.openFile(opts)
	}
	return s
}

// Check reports whether the store can carry these policies, and whether New's
// options were right.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.usable(); err != nil {
		return err
	}
	return backend.CheckPolicies(policies)
}

func (s *Store) usable() error {
	if s == nil || s.stripes == nil {
		return &backend.InvalidError{What: "store", Value: "memory.Store{}", Want: "one made by memory.New"}
	}
	return s.err
}

// check refuses a request before anything is looked at.
func (s *Store) check(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	//mutant:memory-closed
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	//mutant:memory-context
	if err := r.Check(ctx, capabilities); err != nil {
		return err
	}
	if !r.Op.Costs() { // whose algorithms Check has not looked at
		return backend.CheckPolicies(r.Policies)
	}
	return nil
}

// Shared returns what limiters on this store share; it is for Headgate's own layers.
func (s *Store) Shared() *layer.Shared { return &s.shared }

// Len returns the number of counts that the store keeps. The counts that keys
// share while the store is full are not among them.
func (s *Store) Len() int { return int(s.kept.Load()) }

// Capabilities returns what the store can do.
func (s *Store) Capabilities() backend.Capabilities { return capabilities }

var capabilities = backend.Capabilities{
	Ops: backend.OpsOf(backend.Take, backend.Peek, backend.Settle, backend.Reset,
		backend.Reserve, backend.Extend, backend.Record, backend.Borrow, backend.Return),
	Keys: backend.MaxKeys,
}

// Close makes every later request return backend.ErrClosed. It writes the File, if there is one,
// and returns an error if that fails.
func (s *Store) Close() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Close() || s.file == nil {
		return nil
	}
	return s.file.close(s)
}
