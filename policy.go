package headgate

import (
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/shard"
)

// The words that users and stores share.
type (
	// Policy is a rule under a name, with the failure mode for when the store
	// can't decide.
	//
	//	Name      string
	//	Algorithm algo.Algorithm
	//	OnFailure FailureMode
	//	Shards    int
	Policy = backend.Policy
	// Decision is the answer to a call and the numbers that a client needs.
	//
	//	Allowed   bool
	//	Estimated bool      // the numbers are not the store's of now: of a moment ago or, where Counted is false, unknown
	//	Source    Source    // what made the decision
	//	State               // of the policy that binds
	//	Key       string    // the key that binds, where the request has several; else ""
	//	Granted   int64     // units taken from every policy; 0 where they differ, and on a denial
	//	Receipt   *Receipt  // the request's own, filled; nil where none was asked for
	//	Err       error     // the cause, where no store decided; nil where one did, and for FromDenyCache
	Decision = backend.Decision
	// State is one policy's count of a key.
	//
	//	Policy     string
	//	Counted    bool           // Used, Remaining and ResetAfter are known: by the store, or under FailLocal by this process
	//	Limit      int64          // units: the window's limit, or the bucket's burst
	//	Used       int64          // units that count now, rounded up
	//	Remaining  int64          // units that would pass now, never negative
	//	RetryAfter time.Duration  // until this cost passes if nobody else takes; 0 where it passes now
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
	//	Key       string         // EventDecision: the key, as the caller names it
	//	Policies  []Policy       // EventDecision: the limiter's policies; shared, never to be written
	//	Decision  Decision       // EventDecision: the answer; zero where Err is not nil
	//	Err       error          // EventDecision: the error that the call returned
	//	Duration  time.Duration  // EventDecision: of the whole call. EventBatch: of the round trip
	//	StoreTime time.Duration  // EventDecision: the part of Duration spent in the store; 0 where it was not asked
	//	Circuit   Change         // EventCircuit
	//	Batch     Batch          // EventBatch
	Event = backend.Event
	// EventType is what an Event is about.
	EventType = backend.EventType
	// Op is what a call asks.
	Op = backend.Op
	// Change is a change of a node's circuit.
	//
	//	Node  string     // the name of the circuit: the node's address
	//	From, To string  // "closed", "open" or "half-open"; To is Gone where the node has left the store
	Change = backend.Change
	// Batch is one round trip to a node.
	//
	//	Node  string  // as in Change
	//	Calls int     // calls that it decided, at least 1
	//	Keys  int     // keys that they were about, at least 1
	Batch = backend.Batch
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
)

// The types of events.
const (
	EventDecision = backend.EventDecision
	EventCircuit  = backend.EventCircuit
	EventBatch    = backend.EventBatch
)

// The operations of a limiter, as events name them.
const (
	OpTake  = backend.Take
	OpPeek  = backend.Peek
	OpReset = backend.Reset
)

// Gone is what the circuit of a node changes to that has left its cluster.
const Gone = backend.Gone

// The errors; match with errors.Is.
var (
	ErrUnavailable     = backend.ErrUnavailable
	ErrPerhapsCounted  = backend.ErrPerhapsCounted
	ErrNeverAdmissible = backend.ErrNeverAdmissible
	ErrClosed          = backend.ErrClosed
	ErrServerTooOld    = backend.ErrServerTooOld
)

// Stats counts the decisions that the store did not make: those of the failure
// modes and of the deny cache.
type Stats struct {
	breaker.Stats
	DenyCache int64
	Spread    shard.Stats // of keys that are spread: how often their sub-keys were summed, and lost races
}

// Options are a limiter's settings; nil is the same as the zero Options. What
// belongs to one policy is in the Policy, what belongs to a store, as its
// budget, in that store's Options.
type Options struct {
	// Instances is among how many processes FailLocal divides a limit, at
	// least 1. It is needed only where a policy fails local.
	Instances int
	// DenyCacheTTL is how long at most a denial of a store on Redis is remembered in
	// this process: calls of the same key and policies that cost no less are
	// denied from memory until it would pass, for 1 s at most. 0 is 1 s, a
	// negative value is off. What another process does to the key meanwhile,
	// a reset, a refund or a raised limit, shows only after that time; what
	// this process does shows at once. That a spread key is spent (Policy.Shards)
	// is remembered for up to 1 s whatever this says.
	DenyCacheTTL time.Duration
	// Observer receives an Event for each call of this limiter and of those that
	// With and OnFailure make of it, also for one that returns an error. While one
	// of them is in use it also receives each change of a circuit and each batch of
	// the store. It runs on the path of the call, outside of every lock: it must be
	// quick and safe for concurrent use. A panic in it is dropped. Nil is none.
	Observer func(Event)
	// Logger gets a line for each change of a circuit, never one for a call;
	// nil is no log.
	Logger *slog.Logger
}
