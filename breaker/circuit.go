package breaker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/sony/gobreaker/v2"
)

// A circuit opens after maxFailures failed round trips in a row, or when half
// of at least minRoundTrips in the window failed. The first rule finds a dead
// node within milliseconds of load. The second one finds a node that still
// answers now and then. A circuit tries the node again after about openTime.
// gobreaker's default of a minute would leave a limiter without its store long
// after the node is back.
const (
	maxFailures   = 5
	minRoundTrips = 20
	openTime      = time.Second
	window        = 10 * time.Second
	bucket        = time.Second
	maxTrials     = 1 // concurrent round trips while half open
)

// circuits is the guard of one store: one circuit per node, shared by all
// limiters on the store. Lock order: a circuit's own lock, inside gobreaker,
// comes before mu. So nothing may call a circuit under mu.
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
	state string // as last reported; guarded by the lock of circuits
	said  error  // of the last round trip; guarded by the circuit's own lock
}

// excused is called under the circuit's own lock with the result of each round trip,
// just before a change that the result causes.
func (b *circuit) excused(said error) bool {
	b.said = said
	return said == layer.ErrExcused
}

func newCircuits() *circuits {
	c := &circuits{}
	c.mu.nodes, c.mu.watchers = map[string]*circuit{}, map[weak.Pointer[Store]]struct{}{}
	return c
}

// of returns the circuits of the store s, one set for all limiters on it, and
// makes them its guard. The store keeps them under a key of a type that no
// other package can name. It returns nil for a store in this process.
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

// settings are those of one node's circuit. Excused round trips count for
// neither rule, and in a half-open circuit they leave it so, for the next
// trial. The timeout has jitter, and is drawn once per circuit: processes
// differ, and one process keeps its pace.
func settings(node string, excused func(error) bool, changed func(from, to gobreaker.State)) gobreaker.Settings {
	return gobreaker.Settings{
		Name:         node,
		MaxRequests:  maxTrials,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      openTime*3/4 + rand.N(openTime/2), // or a whole fleet tries the node at one instant
		ReadyToTrip: func(n gobreaker.Counts) bool {
			visits := n.Requests - n.TotalExclusions
			return n.ConsecutiveFailures >= maxFailures || visits >= minRoundTrips && 2*n.TotalFailures >= visits // mutant: failures-in-a-row
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { changed(from, to) },
		IsExcluded:    excused,
	}
}

// circuit returns the circuit of a node, which it makes at the first round
// trip.
func (c *circuits) circuit(node string) *circuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mu.nodes[node]
	if b == nil {
		b = &circuit{state: gobreaker.StateClosed.String()}
		b.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](settings(node, b.excused, func(from, to gobreaker.State) {
			c.changed(b, node, from.String(), to.String())
		}))
		c.mu.nodes[node] = b
	}
	return b
}

// Enter reports whether the node's circuit lets a round trip through. The
// caller calls leave exactly once with the result: a trial that never ends
// would keep the circuit half open.
func (c *circuits) Enter(node string) (leave func(error), err error) {
	if leave, err = c.circuit(node).Allow(); err != nil {
		return nil, backend.Wrap(backend.ErrUnavailable, fmt.Errorf("circuit of %s: %w", node, err))
	}
	return leave, nil
}

// Gone removes the circuit of a node that has left, and reports the change. A
// round trip to the node that is still in flight changes nothing any more.
func (c *circuits) Gone(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mu.nodes[node]; b != nil {
		delete(c.mu.nodes, node)
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: b.state, To: backend.Gone}})
	}
}

// changed is called under the circuit's own lock. It ignores a circuit that
// Gone has removed: another one may have taken its name. Only what opens a circuit
// is an error.
func (c *circuits) changed(b *circuit, node, from, to string) {
	var cause error
	if to == opened {
		cause = b.said
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.nodes[node] == b {
		b.state = to
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: from, To: to}, Err: cause})
	}
}

var opened = gobreaker.StateOpen.String()

// states returns each node's circuit state. It asks the circuits outside of mu,
// by the lock order above.
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
