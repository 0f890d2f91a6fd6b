package grpclimit

import (
	"context"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/parts"
	"github.com/headgate-go/headgate/middleware/internal/settle"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// EmptyKey is what a call gets whose key is empty.
type EmptyKey uint8

// The choices for an empty key.
const (
	EmptyRefused EmptyKey = iota // INVALID_ARGUMENT
	EmptyShared                  // all calls without a key share one count
	EmptyPasses                  // the call passes and is not counted
)

// sharedKey is the key of EmptyShared. Package headgate writes no such key.
const sharedKey = "grpclimit%empty"

// Options are the settings of a Server and a Client; nil is the same as the zero
// Options.
type Options struct {
	// EmptyKey is what a call gets whose key is empty. The zero value refuses it.
	EmptyKey EmptyKey
	// Skip reports whether a call passes without being counted, as for health
	// checks; nil counts every call. It is called concurrently.
	Skip func(context.Context, RPC) bool
	// Cost returns what a call costs where its Key returned no costs: one number
	// of units per policy, in the limiter's order. nil, also as the result, is 1
	// of each. It is called concurrently.
	Cost func(context.Context, RPC) []int64
	// Settle makes each call a reservation of its cost. It returns what the call has
	// used, once its handler has returned or panicked. That is one number of units per
	// policy, in the limiter's order. With NewAll the list has the policies of all
	// parts that were decided, those of the first part first. Less than the cost gives
	// the rest back, more is charged above the limit. nil, or a list that does not fit
	// the policies, leaves the cost as it is; of the latter the limiter's Logger gets the
	// first. The function nil settles nothing but slots
	// of algo.InFlight.
	//
	// The call ends when the store has answered, or 50 ms later. A settlement that no store
	// has decided is repeated for the length of the lease, also if the client has left. One
	// that fails changes nothing for the client: the cost is charged until it has aged, and a
	// slot is taken until the lease ends. Observers of the limiter see the error of each try,
	// and its Logger gets the first that was lost. While 4,096 settlements are repeated,
	// others have one try. It is only for a Server.
	Settle func(*Outcome) []int64
	// Settled gets the outcome of each call that was settled, with the states after the
	// settlement. It is for a log line, a metric, or a trailer by grpc.SetTrailer of
	// Outcome.Context. It runs on the handler's goroutine before the call ends.
	// Outcome.States is nil if the settlement failed, or if the store has not answered
	// within 50 ms. nil is none; it needs Settle, such as Reported. It is only for a Server.
	Settled func(*Outcome)
	// SettleWait is how long a denied call waits while others of its key in this process
	// are not settled yet, 0 to 1 min. Their cost may be given back. Waiting calls pass
	// in the order of their arrival. Each of their tries is a decision for the limiter's
	// Observer. 0 denies at once.
	SettleWait time.Duration
	// Messages returns the parts of each message that a Server receives on a stream,
	// which is rpc.Request; nil counts none. A stream counts when it opens, and then by
	// these parts too. A denied message ends the stream with RESOURCE_EXHAUSTED and
	// RetryInfo, whatever the handler returns, and does not reach the handler. No parts
	// are no limit. The parts have no policy of calls in flight. It is called
	// concurrently.
	Messages func(ctx context.Context, rpc RPC) ([]headgate.Part, error)
	// Lease is the length of a reservation's lease, 1 s to 24 h, extended while the
	// handler runs; 0 is headgate.DefaultLease. It is how long a slot stays taken where
	// the process dies. If the store can't be asked until the lease ends, FailClosed of an
	// algo.InFlight policy ends the call's context. Choose a lease longer than the outages
	// to survive.
	Lease time.Duration
	// MaxWait bounds how long a Client waits for one call in all, beside the
	// call's deadline; 0 is 30 s. A Server ignores it.
	MaxWait time.Duration
}

// gate decides on calls, for servers and clients alike. Only calls, marks and pace
// change after newGate.
type gate struct {
	parts func(ctx context.Context, rpc RPC) ([]headgate.Part, error) // nil: the zero Server, or that of Allow
	first bool                                                        // of the parts one is charged
	opts  Options
	calls settle.Calls
	marks parts.Marks
	pace  parts.Pace // of lines that no limiter's Logger gets
}

// newGate makes a gate of one limiter and key.
func newGate(l *headgate.Limiter, key Key, opts *Options) (*gate, error) {
	if opts == nil {
		opts = &Options{}
	}
	if len(l.Policies()) == 0 {
		return nil, &headgate.InvalidError{What: "limiter", Value: l, Want: "one that headgate.New returned"}
	}
	if key.of == nil {
		_, err := key.Of(context.Background(), RPC{})
		return nil, err
	}
	if err := settle.CheckLimiter(l, opts.Settle != nil); err != nil {
		return nil, err
	}
	cost := opts.Cost
	return newGateAll(func(ctx context.Context, rpc RPC) ([]headgate.Part, error) {
		call, err := key.of(ctx, rpc)
		if err == nil && call.Costs == nil && cost != nil {
			call.Costs = cost(ctx, rpc)
		}
		return []headgate.Part{{Limiter: l, Call: call}}, err
	}, opts)
}

func newGateAll(f func(context.Context, RPC) ([]headgate.Part, error), opts *Options) (*gate, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	return &gate{parts: f, opts: *opts, calls: settle.Calls{Lease: opts.Lease, Wait: opts.SettleWait}}, nil
}

func (o *Options) check() error {
	if o.EmptyKey > EmptyPasses {
		return &headgate.InvalidError{What: "EmptyKey", Value: o.EmptyKey, Want: "a constant of package grpclimit, as EmptyRefused"}
	}
	if o.MaxWait < 0 {
		return &headgate.InvalidError{What: "MaxWait", Value: o.MaxWait, Want: "at least 0"}
	}
	return settle.Check(o.Lease, o.SettleWait, o.Settle != nil, o.Settled != nil)
}

// admit returns the error of a call that does not pass, and the context of one that
// does. The delay is the time after which it passes, 0 where waiting does not help, and
// notAsked for the error of a key. A call that is to be settled when it has ended is not nil.
func (g *gate) admit(ctx context.Context, rpc RPC) (context.Context, *settle.Call, time.Duration, error) {
	if g == nil || g.parts == nil {
		return ctx, nil, 0, status.Error(codes.Internal, "grpclimit: zero Server or Client")
	}
	if g.opts.Skip != nil && g.opts.Skip(ctx, rpc) {
		return ctx, nil, 0, nil
	}
	all, err := g.parts(ctx, rpc)
	list, begins, err := g.ready(all, g.first, err)
	if err != nil || len(list) == 0 {
		return ctx, nil, notAsked, err
	}
	ctx = g.marks.Meet(ctx, list)
	call, delay, err := g.decide(ctx, list, begins, g.opts.Settle != nil || settle.NeededFor(list))
	return ctx, call, delay, err
}

// notAsked is the delay of a call that no limiter was asked for.
const notAsked = -1

// ready returns the parts that are to be decided, or the error of a call that has none. If one of
// them is to be charged, it returns the keys of all, and which of them begin a part.
func (g *gate) ready(all []headgate.Part, first bool, err error) (kept []headgate.Part, begins []bool, _ error) {
	if err != nil {
		return nil, nil, g.keyFailed(err, all)
	}
	if kept, begins, err = parts.Flat(all); err != nil {
		return nil, nil, g.keyFailed(err, all)
	}
	for i := 0; i < len(kept); i++ {
		switch {
		case kept[i].Call.Key != "":
		case g.opts.EmptyKey == EmptyRefused:
			return nil, nil, status.Error(codes.InvalidArgument, "rate limit: the call has no key")
		case g.opts.EmptyKey == EmptyPasses:
			kept, begins = parts.Without(kept, begins, i)
			i--
		default:
			kept[i].Call.Key = sharedKey
		}
	}
	list := kept
	if first {
		list, err = parts.ReadyFirst(kept, begins)
	} else {
		list, err = parts.Ready(kept, g.opts.Settle != nil)
		begins = nil
	}
	if err != nil {
		return nil, nil, g.keyFailed(err, kept)
	}
	return list, begins, nil
}

// decide turns the answer of the limiters into a status. A client that left is asked
// for only where no store decided, so that logs show a denial as a denial.
func (g *gate) decide(ctx context.Context, list []headgate.Part, begins []bool, settles bool) (*settle.Call, time.Duration, error) {
	for i := range list {
		if c := &list[i].Call; c.Each == nil {
			c.Each = make([]headgate.State, len(settle.Names(list[i].Limiter))) // a refusal names each policy that denied
		}
	}
	settled, d, err := g.ask(ctx, list, begins, settles)
	switch {
	case err == nil && d.Allowed:
		return settled, 0, nil
	case err == nil && d.Err != nil && ctx.Err() != nil: // not decided: the client left
		return nil, 0, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, 0, g.failed(err, list)
	}
	if begins != nil {
		//mutant:refusal-of-its-part
		from, to := parts.PartAt(begins, d.At)
		list = list[from:to]
	}
	delay, err := denied(d, list)
	return nil, delay, err
}

// ask asks the limiters, by a reservation where the call is settled.
func (g *gate) ask(ctx context.Context, list []headgate.Part, begins []bool, settles bool) (*settle.Call, headgate.Decision, error) {
	if settles {
		return g.calls.Reserve(ctx, list, begins)
	}
	var d headgate.Decision
	var err error
	switch {
	case begins != nil:
		d, err = headgate.First(ctx, parts.Nested(list, begins)...)
	case len(list) > 1:
		d, err = headgate.All(ctx, list...)
	default:
		d, err = list[0].Limiter.Do(ctx, list[0].Call)
	}
	return nil, d, err
}
