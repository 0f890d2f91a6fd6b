package headgate

import (
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/shard"
)

// The words that stations and users share; package backend says what they mean.
type (
	// Policy is a rule under a name, with the failure mode for when the store
	// can't decide.
	Policy = backend.Policy
	// Decision is the answer to a call and the numbers that a client needs.
	Decision = backend.Decision
	// State is what one policy says of a key.
	State = backend.State
	// FailureMode is what a call gets that no store decided.
	FailureMode = backend.FailureMode
	// Source is who decided.
	Source = backend.Source
	// InvalidError is a value that is out of its range.
	InvalidError = backend.InvalidError
	// Event is what Options.Observer receives.
	Event = backend.Event
	// EventType is what an Event is about.
	EventType = backend.EventType
	// Op is what a call asks.
	Op = backend.Op
	// Change is a change of a node's circuit.
	Change = backend.Change
	// Batch is one round trip to a node.
	Batch = backend.Batch
	// Receipt is what is known of a charge.
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

// Stats are the decisions that the store did not make: those of the failure
// modes, and the denials that it had made already.
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
