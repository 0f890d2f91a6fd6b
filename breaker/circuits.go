package breaker

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
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
	mu struct {
		sync.Mutex
		nodes    map[string]*circuit
		changes  []backend.Change // not told yet
		telling  bool             // a goroutine does
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
		c.note(backend.Change{Node: node, From: b.state, To: backend.Gone})
	}
}

// changed is called under the circuit's own lock.
func (c *circuits) changed(b *circuit, node, from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.nodes[node] == b {
		b.state = to
		c.note(backend.Change{Node: node, From: from, To: to})
	}
}

// note is called under the lock, and may be under a circuit's: so another
// goroutine tells of the change.
func (c *circuits) note(change backend.Change) {
	c.mu.changes = append(c.mu.changes, change)
	if !c.mu.telling {
		c.mu.telling = true
		go c.tell()
	}
}

// tell hands the noted changes on in their order, outside of every lock.
func (c *circuits) tell() {
	told := false
	defer func() {
		if !told { // an observer has ended this goroutine
			go c.tell()
		}
	}()
	for {
		changes, observers, loggers := c.pending()
		if told = len(changes) == 0; told {
			return
		}
		for _, change := range changes {
			for _, o := range observers {
				guarded(func() { o.Changed(change) })
			}
			for _, l := range loggers {
				guarded(func() { l.Warn("headgate: circuit", "node", change.Node, "from", change.From, "to", change.To) })
			}
		}
	}
}

// guarded keeps an observer's panic from a trip that has nothing to do with it.
func guarded(f func()) {
	defer func() { _ = recover() }()
	f()
}

// pending returns the changes to tell now, and whom.
func (c *circuits) pending() (changes []backend.Change, observers []backend.Observer, loggers []*slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes = c.mu.changes
	c.mu.changes, c.mu.telling = nil, len(changes) > 0
	seen := map[any]bool{}
	first := func(x any) bool { // limiters may share an observer or a logger
		if !reflect.ValueOf(x).Comparable() {
			return true
		}
		again := seen[x]
		seen[x] = true
		return !again
	}
	for w := range c.mu.watchers {
		s := w.Value()
		if s == nil {
			continue
		}
		if o := s.opts.Observer; o != nil && first(o) {
			observers = append(observers, o)
		}
		if l := s.opts.Logger; l != nil && first(l) {
			loggers = append(loggers, l)
		}
	}
	return changes, observers, loggers
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
	runtime.AddCleanup(s, c.unwatch, w)
}

func (c *circuits) unwatch(w weak.Pointer[Store]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.watchers, w)
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
