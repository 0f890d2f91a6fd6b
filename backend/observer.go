package backend

import "time"

// Observer is told what a limiter does. Its methods are called on the path of
// the calls, outside of every lock: they must be quick and safe for
// concurrent use.
type Observer interface {
	// Changed tells that a node's circuit changed.
	Changed(Change)
	// Decided tells of each decision, how long it took, and by its Err what is
	// known of the count.
	Decided(d Decision, took time.Duration)
}

// Change is a change of a node's circuit.
type Change struct {
	Node     string // the name of the circuit: the node's address
	From, To string // "closed", "open" or "half-open"; To is Gone where the node has left the store
}

// Gone is what the circuit of a node changes to that has left a cluster.
const Gone = "gone"
