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
	//	Shadow    bool
	//	Class     string
	Policy = backend.Policy
	// Decision is the answer to a call and the numbers that a client needs.
	//
	//	Allowed   bool
	//	Source    Source    // what made the decision
	//	State               // of the policy that binds
	//	Key       string    // the key that binds, where the request has several; else ""
	//	At        int       // the index of the part with that key among those of an All, a First or a WaitAll
	//	Passed    int64         // calls of a run that passed, counted or not; 0 if the request is no run
	//	NextAfter time.Duration // of a run that passed in part: until the next of its calls passes if no other call takes
	//	Delay     time.Duration // of a call that passed: how long its caller waits before it goes on, see algo.LeakyQueue and Limiter.Pace
	//	Err       error     // the cause, where no store decided; nil where one did, and for FromDenyCache
	Decision = backend.Decision
	// State is one policy's count of a key.
	//
	//	Policy     string
	//	Known      backend.Known  // what Used, Remaining and ResetAfter are: backend.Exact, Estimated or NotCounted
	//	Passed     int32          // of a run: calls that the policy was charged, 2^31 - 1 if more
	//	Limit      int64          // units: the window's limit, or the bucket's burst
	//	Used       int64          // units that count now, rounded up
	//	Lent       int64          // of these: units that processes hold in advance, see Options.Borrow
	//	Remaining  int64          // units that would pass now, never negative
	//	RetryAfter time.Duration  // until this cost passes if no other call takes; 0 where it passes now; see also Options.DenyCacheTTL
	//	ResetAfter time.Duration  // until nothing is counted any more
	//	Delay      time.Duration  // of a LeakyQueue: how long this call waits before it goes on
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
	//	Op        backend.Op     // EventDecision: what was asked
	//	Key       string         // EventDecision, EventNear: the key, as the caller names it
	//	Policies  []Policy       // EventDecision, EventNear: the limiter's policies; shared, never to be written
	//	Decision  Decision       // EventDecision: the answer; zero where Err is not nil
	//	Err       error          // EventDecision: the error that the call returned
	//	Duration  time.Duration  // EventDecision: of the whole call. EventBatch: of the round trip
	//	StoreTime time.Duration  // EventDecision: the part of Duration spent in the store; 0 where it was not asked
	//	Waited    time.Duration  // EventDecision: the part of Duration that a Wait waited for its turn and for room
	//	Shadow    *Decision      // EventDecision: what the shadow policies decided, of several keys the shadow that binds; nil where there are none
	//	Near      []backend.Near // EventDecision: policies whose count this call has raised to the share Options.Near of the limit; nil: none. EventNear: the same of calls that were decided from a loan, when they are reported
	//	Circuit   backend.Change // EventCircuit
	//	Batch     backend.Batch  // EventBatch
	//	Full      backend.Full   // EventFull
	Event = backend.Event
	// EventType is what an Event is about.
	EventType = backend.EventType
	// CorruptError is a stored value that is not Headgate's.
	CorruptError = backend.CorruptError
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
	FromLoan       = backend.FromLoan
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
