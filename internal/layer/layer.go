// Package layer holds the words that only Headgate's own layers and stores
// exchange: circuits, batches, fallbacks and shared state. A store of another
// author needs none of them; package backend has all that it needs.
package layer

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Shared is what all limiters on one of our own stores share, and what their
// layers may want of the store beyond backend.Store. The store sets the exported
// fields before its first use. The zero Shared is ready; it is safe for concurrent
// use.
type Shared struct {
	// Local reports that the store decides in this process, without round trips.
	Local bool
	// Unbatched reports that each call makes a round trip of its own.
	Unbatched bool
	// Budget is the maximum duration of a decision; 0 is none.
	Budget time.Duration
	// Clock returns the time that the store's counts follow; nil is the process's
	// monotonic clock.
	Clock func() time.Time
	// Closing is set when Close begins. A layer borrows nothing from then on.
	Closing atomic.Bool
	// Closed is set by Close. A layer must not answer then.
	Closed atomic.Bool

	guard      atomic.Pointer[Guard]
	subscribed atomic.Pointer[[]func(Notice)]
	mu         struct {
		sync.Mutex
		values map[any]any
	}
}

// began is the instant from which Now counts without a clock of the store's own.
var began = time.Now()

// Now returns the time that the store's counts follow, from an instant of the process on.
func (s *Shared) Now() time.Duration {
	//mutant:denials-by-store-clock
	if s.Clock == nil {
		return time.Since(began)
	}
	return time.Duration(s.Clock().UnixNano())
}

// sharer is implemented by our own stores.
type sharer interface{ Shared() *Shared }

// Of returns what limiters on the store share, nil for a store of another author.
func Of(s backend.Store) *Shared {
	if s, ok := s.(sharer); ok {
		return s.Shared()
	}
	return nil
}

// IsNil reports whether s is nil, or a nil of a type that can be.
func IsNil(s backend.Store) bool {
	switch v := reflect.ValueOf(s); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return v.IsNil()
	}
	return false
}

// Value returns the value of the key, and makes it the first time.
func (s *Shared) Value(key any, fresh func() any) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.mu.values[key]; ok {
		return v
	}
	if s.mu.values == nil {
		s.mu.values = map[any]any{}
	}
	v := fresh()
	s.mu.values[key] = v
	return v
}

// Close notifies the subscribers, all at once, and marks the store as closed. It reports
// whether another Close did so, or is about to.
func (s *Shared) Close() (before bool) {
	if s.Closing.Swap(true) {
		return true
	}
	all := s.subscribers()
	//mutant:close-side-by-side
	Parallel(len(all), func(i int) { all[i](Notice{Change: Closing}) })
	s.Closed.Store(true)
	close(s.done())
	return false
}

// Done returns a channel that Close closes.
func (s *Shared) Done() <-chan struct{} { return s.done() }

func (s *Shared) done() chan struct{} {
	type key struct{}
	return s.Value(key{}, func() any { return make(chan struct{}) }).(chan struct{})
}

// The outcome of a round trip to a node, as a circuit counts it; nil where the
// node decided, a denial too.
var (
	// ErrFailed means that the node did not answer in time, or answered that it
	// does not serve. It may wrap the cause.
	ErrFailed = errors.New("headgate: node failed")
	// ErrSilent is an ErrFailed of a node that answers nothing at all, which is no accident of
	// one round trip. It opens the circuit by itself.
	ErrSilent = backend.Wrap(ErrFailed, errors.New("it answers nothing"))
	// ErrExcused means that nothing is known of the node: a redirect, a caller that
	// left, our own pool full.
	ErrExcused = errors.New("headgate: not the node's fault")
)

// ErrTrial is the error of Enter while another round trip is the trial of an open circuit.
// The trial shows whether the node may be asked.
var ErrTrial = errors.New("another call is its trial")

// Guard is asked before every round trip of a store to a node, and receives its
// outcome.
type Guard interface {
	// Enter reports whether the node may be asked now. After an error nothing is
	// sent. Otherwise leave is called exactly once, with nil, an error that is
	// ErrFailed, or ErrExcused.
	Enter(node string) (leave func(error), err error)
	// Awaits reports whether the node's circuit is open and waits for an answer of
	// the node. Until then no round trip enters.
	Awaits(node string) bool
	// Answered ends that wait: the node answered a probe, or a round trip too late.
	Answered(node string)
	// Gone removes the circuit of a node that has left.
	Gone(node string)
	// Batch notes a round trip that was answered.
	Batch(b backend.Batch, took time.Duration)
	// Full notes that a store in this process has no free count for a class of keys.
	Full(f backend.Full)
}

// SetGuard makes g the store's guard, in place of any earlier one.
func (s *Shared) SetGuard(g Guard) { s.guard.Store(&g) }

// Enter asks the store's guard; without one every node may be asked.
func (s *Shared) Enter(node string) (leave func(error), err error) {
	if g := s.guard.Load(); g != nil {
		return (*g).Enter(node)
	}
	return func(error) {}, nil
}

// Awaits reports whether the store's guard waits for an answer of the node.
func (s *Shared) Awaits(node string) bool {
	g := s.guard.Load()
	return g != nil && (*g).Awaits(node)
}

// Answered reports to the store's guard that a node has answered.
func (s *Shared) Answered(node string) {
	if g := s.guard.Load(); g != nil {
		(*g).Answered(node)
	}
}

// Gone reports to the store's guard that a node has left.
func (s *Shared) Gone(node string) {
	if g := s.guard.Load(); g != nil {
		(*g).Gone(node)
	}
}

// Batch reports to the store's guard a round trip that was answered.
func (s *Shared) Batch(b backend.Batch, took time.Duration) {
	if g := s.guard.Load(); g != nil {
		(*g).Batch(b, took)
	}
}

// Full reports to the store's guard that there is no free count for a class of keys.
func (s *Shared) Full(f backend.Full) {
	if g := s.guard.Load(); g != nil {
		(*g).Full(f)
	}
}

// Ping asks the store, where it can be asked.
func Ping(ctx context.Context, s backend.Store) (warnings []string, err error) {
	if p, ok := s.(backend.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil, nil
}

// Ask decides a request and returns the decision. It allocates: for callers off
// the path of a call.
func Ask(ctx context.Context, s backend.Store, r backend.Request) (backend.Decision, error) {
	var d backend.Decision
	err := s.Do(ctx, &r, &d)
	return d, err
}
