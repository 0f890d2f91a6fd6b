package otellimit

import (
	"slices"
	"sync"

	"github.com/headgate-go/headgate/backend"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Addresses in a cloud are new each time, so a process may see any number of
// them.
const (
	maxNodes = 1000 // the names that counters and histograms distinguish, and the gauge's nodes
	maxGone  = 32   // the nodes that left which the gauge reports
)

// states are those of a circuit, as backend.Change has them.
var states = []string{"closed", "open", "half_open", backend.Gone}

// nodes are the states of the nodes' circuits. names only grows, up to its
// bound, since a counter's label sets stay for ever anyway. states is bounded
// by dropping what changed longest ago, those of left nodes first.
type nodes struct {
	names cache[string, struct{}]
	mu    struct {
		sync.Mutex
		states map[string]string
		order  []string // the nodes of states; the one that changed last stands last
		gone   int      // how many of them left
	}
}

// label returns the node's name as an attribute's value.
func (n *nodes) label(node string) string {
	if _, ok := n.names.of(node, maxNodes, func() struct{} { return struct{}{} }); ok {
		return node
	}
	return other
}

// answered notes a node whose round trip was answered: where no change was
// reported its circuit is closed. It replaces no node whose change was reported.
func (n *nodes) answered(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.states[node] == "" && len(n.mu.states) < maxNodes {
		n.set(node, "closed")
	}
}

// changed notes a change, in place of the oldest where there are too many. Stores
// that are closed do not report that their nodes are gone.
func (n *nodes) changed(node, state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(node, state)
	if n.mu.gone > maxGone {
		n.drop(slices.IndexFunc(n.mu.order, func(node string) bool { return n.mu.states[node] == backend.Gone }))
	}
	if len(n.mu.order) > maxNodes {
		n.drop(0)
	}
}

// set moves the node to the end of the order. It is called under the lock. A
// search in order is cheap: circuits change seldom.
func (n *nodes) set(node, state string) {
	if i := slices.Index(n.mu.order, node); i >= 0 {
		n.drop(i)
	}
	if n.mu.states == nil {
		n.mu.states = map[string]string{}
	}
	n.mu.states[node] = state
	n.mu.order = append(n.mu.order, node)
	if state == backend.Gone {
		n.mu.gone++
	}
}

// drop forgets the i-th node of the order. It is called under the lock.
func (n *nodes) drop(i int) {
	node := n.mu.order[i]
	if n.mu.states[node] == backend.Gone {
		n.mu.gone--
	}
	delete(n.mu.states, node)
	n.mu.order = slices.Delete(n.mu.order, i, i+1)
}

// observe reports each state of each node, 0 for those it is not in: without
// the zeros a dashboard would keep showing the state before.
func (n *nodes) observe(m *Metrics, o metric.Observer, gauge metric.Int64Observable) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for node, state := range n.mu.states {
		for _, s := range states {
			value := int64(0)
			if s == state {
				value = 1
			}
			o.ObserveInt64(gauge, value, m.set(
				attribute.String("headgate.node", node), attribute.String("headgate.circuit.state", s)))
		}
	}
}
