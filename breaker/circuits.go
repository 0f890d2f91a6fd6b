package breaker

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

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

// circuits is the guard of one store: a circuit a node, shared by all limiters
// on the store.
type circuits struct {
	mu struct {
		sync.Mutex
		nodes     map[string]*gobreaker.TwoStepCircuitBreaker[struct{}]
		changes   []backend.Change // not told yet
		telling   bool             // a goroutine does
		observers []backend.Observer
		loggers   []*slog.Logger
	}
}

func newCircuits() *circuits {
	c := &circuits{}
	c.mu.nodes = map[string]*gobreaker.TwoStepCircuitBreaker[struct{}]{}
	return c
}

// of returns the circuits of the store under s, one set for all limiters on
// it, and stands them at its round trips; nil for a store that makes none.
func of(s backend.Store) *circuits {
	h, ok := s.(backend.Hubbed)
	if !ok {
		return nil
	}
	type key struct{}
	c := h.Hub().Share(key{}, func() any { return newCircuits() }).(*circuits)
	h.Hub().SetGuard(c)
	return c
}

func (c *circuits) settings(node string) gobreaker.Settings {
	return gobreaker.Settings{
		Name:         node,
		MaxRequests:  halfOpened,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      open*3/4 + rand.N(open/2), // or a fleet asks a woken node all at once
		ReadyToTrip: func(n gobreaker.Counts) bool {
			trips := n.Requests - n.TotalExclusions
			return n.ConsecutiveFailures >= row || trips >= enough && 2*n.TotalFailures >= trips
		},
		OnStateChange: c.note,
		IsExcluded:    func(err error) bool { return err == backend.ErrExcused },
	}
}

func (c *circuits) circuit(node string) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mu.nodes[node]
	if b == nil {
		b = gobreaker.NewTwoStepCircuitBreaker[struct{}](c.settings(node))
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

// Gone forgets a node's circuit.
func (c *circuits) Gone(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.nodes, node)
}

// note runs under gobreaker's lock, so another goroutine tells of the change.
func (c *circuits) note(node string, from, to gobreaker.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.changes = append(c.mu.changes, backend.Change{Node: node, From: from.String(), To: to.String()})
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
		c.mu.Lock()
		changes, observers, loggers := c.mu.changes, c.mu.observers, c.mu.loggers
		c.mu.changes, c.mu.telling = nil, len(changes) > 0
		c.mu.Unlock()
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

// watch adds who is told of changes.
func (c *circuits) watch(o backend.Observer, l *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o != nil && !(reflect.ValueOf(o).Comparable() && slices.Contains(c.mu.observers, o)) {
		c.mu.observers = append(slices.Clone(c.mu.observers), o)
	}
	if l != nil && !slices.Contains(c.mu.loggers, l) {
		c.mu.loggers = append(slices.Clone(c.mu.loggers), l)
	}
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
