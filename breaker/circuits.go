package breaker

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
	"github.com/sony/gobreaker/v2"
)

// A circuit opens after a row of failed round trips, or when half of enough
// recent ones failed, and asks again after about a second: gobreaker's own
// default of 60 would leave a limiter blind for most of an outage.
const (
	row        = 5
	enough     = 20
	open       = time.Second
	window     = 10 * time.Second
	bucket     = time.Second
	halfOpened = 1 // trips at a time, while half open
)

// circuits is the guard of one store: one circuit per node, shared by all
// limiters on the store.
type circuits struct {
	observed atomic.Int64 // the number of watchers
	mu       struct {
		sync.Mutex
		nodes    map[string]*circuit
		events   []backend.Event // not delivered yet
		telling  bool            // a goroutine delivers them
		watchers map[weak.Pointer[Store]]struct{}
	}
}

// circuit is the circuit of one node.
type circuit struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	state string // as last noted; guarded by the lock of circuits
}

func newCircuits() *circuits {
	c := &circuits{}
	c.mu.nodes, c.mu.watchers = map[string]*circuit{}, map[weak.Pointer[Store]]struct{}{}
	return c
}

// of returns the circuits of the store under s, one set for all limiters on
// it, and stands them at its round trips; nil for a store that makes none.
func of(s backend.Store) *circuits {
	shared := layer.Of(s)
	if shared == nil || shared.Local {
		return nil
	}
	type key struct{}
	c := shared.Value(key{}, func() any { return newCircuits() }).(*circuits)
	shared.SetGuard(c)
	return c
}

func settings(node string, changed func(from, to gobreaker.State)) gobreaker.Settings {
	return gobreaker.Settings{
		Name:         node,
		MaxRequests:  halfOpened,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      open*3/4 + rand.N(open/2), // or a fleet asks a woken node all at once
		ReadyToTrip: func(n gobreaker.Counts) bool {
			trips := n.Requests - n.TotalExclusions
			return n.ConsecutiveFailures >= row || trips >= enough && 2*n.TotalFailures >= trips // mutant: failures-in-a-row
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { changed(from, to) },
		IsExcluded:    func(err error) bool { return err == layer.ErrExcused },
	}
}

func (c *circuits) circuit(node string) *circuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mu.nodes[node]
	if b == nil {
		b = &circuit{state: gobreaker.StateClosed.String()}
		b.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](settings(node, func(from, to gobreaker.State) {
			c.changed(b, node, from.String(), to.String())
		}))
		c.mu.nodes[node] = b
	}
	return b
}

// Enter asks the node's circuit.
func (c *circuits) Enter(node string) (leave func(error), err error) {
	if leave, err = c.circuit(node).Allow(); err != nil {
		return nil, backend.Wrap(backend.ErrUnavailable, fmt.Errorf("circuit of %s: %w", node, err))
	}
	return leave, nil
}

// Gone forgets a node's circuit, and tells that it has gone. What a round trip
// to the node that is still under way does to the circuit is not told.
func (c *circuits) Gone(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mu.nodes[node]; b != nil {
		delete(c.mu.nodes, node)
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: b.state, To: backend.Gone}})
	}
}

// changed is called under the circuit's own lock.
func (c *circuits) changed(b *circuit, node, from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.nodes[node] == b {
		b.state = to
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: from, To: to}})
	}
}

// maxEvents is the maximum number of events that wait for slow observers. Batches
// beyond it are not reported.
const maxEvents = 4096

// note is called under the lock, and may be under a circuit's: so another
// goroutine calls the observers.
func (c *circuits) note(e backend.Event) {
	c.mu.events = append(c.mu.events, e)
	if !c.mu.telling {
		c.mu.telling = true
		go c.tell()
	}
}

// tell delivers the noted events in their order, outside of every lock.
func (c *circuits) tell() {
	done := false
	defer func() {
		if !done { // an observer has ended this goroutine
			go c.tell()
		}
	}()
	for {
		events, observers, loggers := c.pending()
		if done = len(events) == 0; done {
			return
		}
		for _, e := range events {
			for _, o := range observers {
				guarded(func() { o(e) })
			}
			if e.Type != backend.EventCircuit {
				continue
			}
			for _, l := range loggers {
				guarded(func() {
					l.Warn("headgate: circuit", "node", e.Circuit.Node, "from", e.Circuit.From, "to", e.Circuit.To)
				})
			}
		}
	}
}

// guarded keeps an observer's panic from a trip that has nothing to do with it.
func guarded(f func()) {
	defer func() { _ = recover() }()
	f()
}

// pending returns the events to deliver now, and to whom.
func (c *circuits) pending() (events []backend.Event, observers []func(backend.Event), loggers []*slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events = c.mu.events
	c.mu.events, c.mu.telling = nil, len(events) > 0
	for w := range c.mu.watchers {
		s := w.Value()
		if s == nil {
			continue
		}
		if o := s.opts.Observer; o != nil {
			observers = append(observers, o)
		}
		if l := s.opts.Logger; l != nil && !slices.Contains(loggers, l) { // limiters may share a logger
			loggers = append(loggers, l)
		}
	}
	return events, observers, loggers
}

// Batch notes a round trip that was answered, for the observers.
func (c *circuits) Batch(b backend.Batch, took time.Duration) {
	if c.observed.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.events) < maxEvents {
		c.note(backend.Event{Type: backend.EventBatch, Batch: b, Duration: took})
	}
}

// watch has the observer and the logger of s told of changes for as long as s
// is in use. The circuits outlive it, so they must not keep it alive.
func (c *circuits) watch(s *Store) {
	if s.opts.Observer == nil && s.opts.Logger == nil {
		return
	}
	w := weak.Make(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.watchers[w] = struct{}{}
	c.observed.Store(int64(len(c.mu.watchers)))
	runtime.AddCleanup(s, c.unwatch, w)
}

func (c *circuits) unwatch(w weak.Pointer[Store]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.watchers, w)
	c.observed.Store(int64(len(c.mu.watchers)))
}

// states returns each node's circuit state.
func (c *circuits) states() map[string]string {
	c.mu.Lock()
	nodes := maps.Clone(c.mu.nodes)
	c.mu.Unlock()
	states := make(map[string]string, len(nodes))
	for node, b := range nodes {
		states[node] = b.State().String()
	}
	return states
}
