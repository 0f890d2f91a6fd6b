package headgate

import "github.com/headgate-go/headgate/backend"

// The words that users and stores share. go doc of package backend has each field's
// comment, as in "go doc backend.Policy".
type (
	// Policy is a rule under a name, with the failure mode for when the store
	// can't decide.
	//
	//	Name      string
	//	Algorithm algo.Algorithm
	//	OnFailure FailureMode
	//	Shards    int
	//	Shadow    bool
	//	Borrow    time.Duration
	//	Class     string
	Policy = backend.Policy
	// Decision is the answer to a call and the numbers that a client needs.
	//
	//	Allowed   bool
	//	Estimated bool      // the numbers are not the store's of now: of a moment ago or, where Counted is false, unknown
	//	Source    Source    // what made the decision
	//	State               // of the policy that binds
	//	Key       string    // the key that binds, where the request has several; else ""
	//	At        int       // the group of that key: 0 is the request's own, 1 the first of And
	//	Passed    int64         // calls of a run that passed, counted or not; 0 if the request is no run
	//	NextAfter time.Duration // of a run that passed in part: until the next of its calls passes if no other call takes
	//	Receipt   *Receipt  // the request's own, filled; nil where none was asked for
	//	Err       error     // the cause, where no store decided; nil where one did, and for FromDenyCache
	Decision = backend.Decision
	// State is one policy's count of a key.
	//
	//	Policy     string
	//	Counted    bool           // Used, Remaining and ResetAfter are known: by the store, or under FailLocal by this process
	//	Passed     int32          // of a run: calls that the policy was charged, 2^31 - 1 if more
	//	Limit      int64          // units: the window's limit, or the bucket's burst
	//	Used       int64          // units that count now, rounded up
	//	Lent       int64          // of these: units that processes hold in advance, see Policy.Borrow
	//	Remaining  int64          // units that would pass now, never negative
	//	RetryAfter time.Duration  // until this cost passes if no other call takes; 0 where it passes now; see also Options.DenyCacheTTL
	//	ResetAfter time.Duration  // until nothing is counted any more
	State = backend.State
	// FailureMode is what a call gets when no store decided it.
	FailureMode = backend.FailureMode
	// Source is what made a decision.
	Source = backend.Source
	// InvalidError is a value that is out of its range.
	InvalidError = backend.InvalidError
	// Event is what Options.Observer receives.
	//
	//	Type      EventType
	//	Op        Op             // EventDecision: what was asked
	//	Key       string         // EventDecision, EventNear: the key, as the caller names it
	//	Policies  []Policy       // EventDecision, EventNear: the limiter's policies; shared, never to be written
	//	Decision  Decision       // EventDecision: the answer; zero where Err is not nil
	//	Err       error          // EventDecision: the error that the call returned
	//	Duration  time.Duration  // EventDecision: of the whole call. EventBatch: of the round trip
	//	StoreTime time.Duration  // EventDecision: the part of Duration spent in the store; 0 where it was not asked
	//	Waited    time.Duration  // EventDecision: the part of Duration that a Wait waited for its turn and for room
	//	Shadow    *Decision      // EventDecision: what the shadow policies decided, of several keys the shadow that binds; nil where there are none
	//	Near      []Near         // EventDecision: policies whose count this call has raised to the share Options.Near of the limit; nil: none. EventNear: the same of calls that were decided from a lease, when they are reported
	//	Circuit   Change         // EventCircuit
	//	Batch     Batch          // EventBatch
	//	Full      Full           // EventFull
	Event = backend.Event
	// EventType is what an Event is about.
	EventType = backend.EventType
	// Op is what a call asks.
	Op = backend.Op
	// Near is a policy of a key whose count has reached a share of the limit.
	//
	//	Key string  // as the caller names it
	//	State
	Near = backend.Near
	// Change is a change of a node's circuit.
	//
	//	Node  string     // the name of the circuit: the node's address
	//	From, To string  // "closed", "open" or "half_open"; To is Gone where the node has left the store
	Change = backend.Change
	// Batch is one round trip to a node.
	//
	//	Node  string  // as in Change
	//	Calls int     // calls that it decided, at least 1
	//	Keys  int     // keys that they were about, at least 1
	Batch = backend.Batch
	// Full is a class of keys that share a count, since a store in memory has no free one.
	//
	//	Class             string  // Policy.Class of the keys
	//	Counts, MaxCounts int     // of the whole store: counts that it keeps, and how many it may
	Full = backend.Full
	// Receipt is what is known of a charge.
	//
	//	Key     string
	//	Sub     string   // the sub-key of a hot key that was charged
	//	At      []int64  // per policy, the instant that the charge counts from: microseconds of the Unix epoch, by the store's clock
	//	Costs   []int64  // units, one per policy; nil where every policy was charged Cost
	//	Cost    int64    // units of every policy, where Costs is nil
	//	Outcome Outcome
	Receipt = backend.Receipt
	// CorruptError is a stored value that is not Headgate's.
	CorruptError = backend.CorruptError
	// RightError is a right that a server's user lacks.
	RightError = backend.RightError
	// ScriptError is a server that can't run Headgate's script.
	ScriptError = backend.ScriptError
)

// The failure modes. There is no default.
const (
	FailOpen   = backend.FailOpen
	FailClosed = backend.FailClosed
	FailLocal  = backend.FailLocal
)

// The sources of a decision.
const (
	FromStore      = backend.FromStore
	FromFailOpen   = backend.FromFailOpen
	FromFailClosed = backend.FromFailClosed
	FromFailLocal  = backend.FromFailLocal
	FromDenyCache  = backend.FromDenyCache
	FromLease      = backend.FromLease
	FromNone       = backend.FromNone
)

// The types of events.
const (
	EventDecision = backend.EventDecision
	EventCircuit  = backend.EventCircuit
	EventBatch    = backend.EventBatch
	EventNear     = backend.EventNear
	EventFull     = backend.EventFull
)

// The operations of a limiter, as events name them.
const (
	OpTake    = backend.Take
	OpPeek    = backend.Peek
	OpAtMost  = backend.AtMost
	OpReserve = backend.Reserve
	OpSettle  = backend.Settle // a Commit, Cancel or Close, also one in the background; and a Resume that returns an error
	OpExtend  = backend.Extend
	OpRecord  = backend.Record
	OpReset   = backend.Reset
)

// Gone is what the circuit of a node changes to that has left its cluster.
const Gone = backend.Gone
