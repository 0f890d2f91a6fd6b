package backend

import "time"

// EventType says what an Event is about, and so which of its fields are set.
type EventType uint8

// The types of events.
const (
	EventDecision EventType = iota + 1 // a call ended: a decision, or a returned error
	EventCircuit                       // the circuit of a node changed
	EventBatch                         // a round trip to a node ended with an answer
	EventNear                          // calls that were decided from a loan have raised a count to a share of its limit
	EventFull                          // a store in memory has no free count for new keys of a class, which share one; at most once per minute
)

// Event is what an observer receives. It has room to grow: later releases may
// add fields and types. An observer ignores types that it does not handle.
type Event struct {
	Type EventType

	Op        Op            // EventDecision: what was asked
	Key       string        // EventDecision, EventNear: the key, as the caller names it
	Policies  []Policy      // EventDecision, EventNear: the limiter's policies; shared, never to be written
	Decision  Decision      // EventDecision: the answer; zero where Err is not nil. Of a Settle the state after it, but of a spread key
	Err       error         // EventDecision: the error that the call returned. EventCircuit: why the circuit opened
	Duration  time.Duration // EventDecision: of the whole call. EventBatch: of the round trip
	StoreTime time.Duration // EventDecision: the part of Duration spent in the store; 0 where it was not asked
	Waited    time.Duration // EventDecision: the part of Duration that a Wait waited for its turn and for room

	// EventDecision: what the shadow policies decided; nil where there are none, or no store
	// has counted them. Of a call for several keys it is that of the key whose shadow binds,
	// with its Key. Keys whose limiters have no observer are left out.
	Shadow *Decision

	// EventDecision: the policies whose count this call has raised to a share of the limit
	// (Options.Near); nil: none. One call of all processes has it, and another one when the
	// count has fallen below the share and rises again. A Settle raises it by what was used
	// above the estimate. Reserved units count: with estimates that are too high, settlements
	// may lower a count below the share again and again. Counts of spread keys and of
	// shadows are left out. The event of a call for several keys has Near of all of them
	// whose limiters have an observer. It goes to the observer of the limiter that binds, so
	// limiters of one All should share an observer.
	//
	// EventNear: the same of what calls used that were decided from a loan. Units count here
	// when the process that holds them reports them as used, so lent units don't. If a process
	// ends and never reports, its units raise the count without an event.
	Near []Near

	Circuit Change // EventCircuit
	Batch   Batch  // EventBatch
	Full    Full   // EventFull
}

// Near is a policy of a key whose count has reached a share of the limit.
type Near struct {
	Key string // as the caller names it
	State
}

// Change is a change of a node's circuit.
type Change struct {
	Node     string // the name of the circuit: the node's address
	From, To string // "closed", "open" or "half_open"; To is Gone where the node has left the store
}

// Full is a class of keys that share a count, since a store in memory has no free one.
type Full struct {
	Class             string // Policy.Class of the keys
	Counts, MaxCounts int    // of the whole store: counts that it keeps, and how many it may
}

// Gone is what the circuit of a node changes to that has left a cluster.
const Gone = "gone"

// Batch is one round trip to a node.
type Batch struct {
	Node  string // as in Change
	Calls int    // calls that it decided, at least 1
	Keys  int    // keys that they were about, at least 1
}
