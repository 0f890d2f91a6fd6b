package otellimit

import (
	"slices"
	"sync"

	"github.com/headgate-go/headgate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Addresses in a cloud are new each time, so a process may see any number of
// them.
const (
	maxNodes = 1000 // the names that counters and histograms tell apart
	maxGone  = 32   // the nodes that left which the gauge reports
)

// states are those of a circuit, as headgate.Change has them.
var states = []string{"closed", "open", "half-open", headgate.Gone}

// nodes are the states of the nodes' circuits.
type nodes struct {
	names cache[string, struct{}]
	mu    struct {
		sync.Mutex
		states map[string]string
		gone   []string // in the order in which they left
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
// reported its circuit is closed.
func (n *nodes) answered(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.states[node] == "" {
		n.set(node, "closed")
	}
}

func (n *nodes) changed(node, state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set(node, state)
}

// set is called under the lock.
func (n *nodes) set(node, state string) {
	if n.mu.states == nil {
		n.mu.states = map[string]string{}
	}
	n.mu.states[node] = state
	n.mu.gone = slices.DeleteFunc(n.mu.gone, func(g string) bool { return g == node })
	if state == headgate.Gone {
		n.mu.gone = append(n.mu.gone, node)
	}
	if len(n.mu.gone) > maxGone {
		delete(n.mu.states, n.mu.gone[0])
		n.mu.gone = n.mu.gone[1:]
	}
}

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
