// Package breaker is the layer that decides whether a node may be asked. It
// also decides what a call gets when no store decided it, by each policy's
// failure mode. It keeps a circuit breaker per node, of
// github.com/sony/gobreaker.
package breaker

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// RetryAfter is the RetryAfter of a call that failed closed. No instant is known
// at which it would pass.
const RetryAfter = time.Second

// Options are the settings of a Store; nil is the same as the zero Options.
type Options struct {
	Local     backend.Store // decides for FailLocal; nil: FailLocal is refused
	Instances int           // the number of processes among which FailLocal divides a limit
	// Known answers a call that no store decided, if its key is known to be denied, and
	// reports whether it did. Nil: the failure modes answer all of them.
	Known    func(r *backend.Request, d *backend.Decision) bool
	Observer func(backend.Event) // receives circuits, batches and full stores for as long as the store is in use; nil: none
	Logger   *slog.Logger        // gets a line per change of a circuit, a warning where one opens, and stored values that are not Headgate's; nil: none
}

// Store is a backend.Store over another. It answers as next does. If next could not
// decide, Fail answers by the policies' failure modes. One circuit per node spares calls
// the wait for a node that does not answer. A Store is safe for concurrent use.
type Store struct {
	next     backend.Store
	opts     Options
	circuits *circuits // nil for a store of another author
	undone   counters
	warned   atomic.Int64 // when a stored value that is not Headgate's was logged last, in seconds
}

// counters count the decisions that no store made. They are atomics outside of
// the circuits, since each layer over a store has its own.
type counters struct{ open, closed, local, perhaps atomic.Int64 }

// Stats counts the decisions that the store did not make, since New. Decisions of
// the store are not counted, since a counter would slow down every call; an
// observer receives all of them.
type Stats struct {
	FailOpen, FailClosed, FailLocal int64
	PerhapsCounted                  int64             // charges that were sent, and no answer came
	Circuits                        map[string]string // state per node; nil for a store in this process
	Batches                         Batches           // round trips of the store, for all limiters on it
}

// Batches counts the round trips that were answered, and the calls that they decided.
type Batches struct {
	RoundTrips int64
	Calls      int64
	Time       time.Duration // of all round trips
	Sizes      [10]int64     // round trips of 1 call, of 2 and 3, of 4 to 7, …, of 512 and more
}

// Stats returns what was counted up to now.
func (s *Store) Stats() Stats {
	c := &s.undone
	return Stats{c.open.Load(), c.closed.Load(), c.local.Load(), c.perhaps.Load(), s.Circuits(), s.circuits.batches()}
}

// count is called once per call, whichever of several requests decided it.
func (c *counters) count(d *backend.Decision) {
	switch d.Source {
	case backend.FromFailOpen:
		c.open.Add(1)
	case backend.FromFailClosed:
		c.closed.Add(1)
	case backend.FromFailLocal:
		c.local.Add(1)
	}
}

// New returns the layer over next. All layers over one store share its
// circuits: what one limiter learns of a node's death spares the others the
// wait. A store in this process has none, since nothing lies between; it reports that it is full.
func New(next backend.Store, opts *Options) *Store {
	s := &Store{next: next}
	if opts != nil {
		s.opts = *opts
	}
	if s.circuits = of(next); s.circuits != nil {
		s.circuits.watch(s)
	}
	return s
}

// Check refuses what next refuses, and a policy whose failure mode can't be kept.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.next.Check(policies); err != nil {
		return err
	}
	for i := range policies {
		if err := s.checkMode(&policies[i]); err != nil {
			return err
		}
	}
	return nil
}

// Do answers as next does, without the failure modes; see Fail. An unresolved lease is
// settled or extended in this process too.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	begin := begin(r)
	//mutant:attempted-once
	err := s.next.Do(ctx, r, d)
	spent(r, begin)
	return s.answered(ctx, r, err)
}

// DoAll decides each of the requests as Do would, at once; see layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	if len(rs) == 0 {
		return
	}
	begin := begin(&rs[0]) // they are parts of one call
	layer.DoAll(ctx, s.next, rs, answers)
	spent(&rs[0], begin)
	for i := range rs {
		answers[i].Err = s.answered(ctx, &rs[i], answers[i].Err)
	}
}

// answered counts a charge whose reply was lost, and returns the request's error.
func (s *Store) answered(ctx context.Context, r *backend.Request, err error) error {
	if err != nil && r.Op.Charges() && admits(r) && errors.Is(err, backend.ErrPerhapsCounted) {
		s.undone.perhaps.Add(1)
	}
	for i := range 1 + len(r.And) {
		//mutant:local-lease-of-shadowed
		if l := r.GroupAt(i).Lease; l == nil || !l.Unresolved && !l.Named {
			continue
		}
		part := layer.Part(r, i)
		here := s.localLease(ctx, &part, err)
		//mutant:local-lease-ended
		if err != nil && errors.Is(here, backend.ErrLeaseEnded) {
			return here
		}
	}
	return err
}

// begin returns the time if the request wants its StoreTime.
func begin(r *backend.Request) (now time.Time) {
	if r.StoreTime != nil {
		now = time.Now()
	}
	return now
}

// spent adds, since several requests of one call may add up their times.
func spent(r *backend.Request, begin time.Time) {
	if r.StoreTime != nil {
		r.StoreTime.Add(int64(time.Since(begin)))
	}
}

// Fail decides by the failure modes what next could not: a request for admission or
// a peek. Any other that next could not make, such as a reset or a settlement, is an
// error: no failure mode can make up for it. Of several keys see failKeys, and
// layer.Fallback of shares. Of alternatives the modes of the first one decide.
func (s *Store) Fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error, shares iter.Seq[*backend.Request]) error {
	// An earlier request may have written it.
	//mutant:decision-cleared
	*d = backend.Decision{}
	if !backend.Undecided(err) || !admits(r) {
		return err
	}
	if _, to := r.Alternative(0); r.First() {
		first := layer.Slice(r, 0, to)
		own, _ := layer.Own(&first.Group, s)
		return own.Fail(ctx, &first, d, err, nil)
	}
	by := s
	if len(r.And) > 0 {
		by = s.failKeys(ctx, r, d, err)
	} else if !s.known(r, d, err) {
		if err := s.fail(ctx, r, d, err, shares); err != nil {
			return err
		}
	}
	by.undone.count(d)
	return nil
}

// known answers by a denial that is known to stand, whatever the failure modes are, and
// reports whether there is one. If the reply was lost, the denial has the error, for callers
// that ask again or have something to settle. The limiter takes it off for all others.
func (s *Store) known(r *backend.Request, d *backend.Decision, err error) bool {
	//mutant:what-is-known-stands
	if s.opts.Known == nil || !s.opts.Known(r, d) {
		return false
	}
	//mutant:known-perhaps-counted
	if errors.Is(err, backend.ErrPerhapsCounted) {
		d.Err = err
	}
	return true
}

// admits reports whether a failure mode can answer a request.
func admits(r *backend.Request) bool {
	call := r.Op != backend.Borrow || r.Cost > 0 // or it only lends and settles
	return call && r.Op.Fails()
}

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next.
func (s *Store) Close() error { return s.next.Close() }

// Ping checks next, if it can be checked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }

// Circuits returns the state of each node's circuit by the node's name; nil for a
// store in this process.
func (s *Store) Circuits() map[string]string {
	if s.circuits == nil || layer.Of(s.next).Local {
		return nil
	}
	return s.circuits.states()
}
