package grpclimit

import (
	"context"
	"time"

	"github.com/headgate-go/headgate"
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
	// Settle makes each call a reservation of its cost, and returns what the call has
	// used, once its handler has returned or panicked: one number of units per policy, in
	// the limiter's order. Less than the cost gives the rest back, more is charged above
	// the limit. nil, or a list that does not fit the policies, leaves the cost as it is.
	// The function nil settles nothing but slots of algo.InFlight.
	//
	// The call ends when the store has answered, or 50 ms later; the settlement goes on
	// for at most 10 s, also where the client has left. One that fails changes nothing for
	// the client: the cost is charged until it has aged, and a slot is taken until the
	// lease ends. Observers of the limiter see the error. It is for a Server alone.
	Settle func(*Outcome) []int64
	// SettleWait is how long a call that is denied waits while others of its key in this
	// process are not settled yet, 0 to 1 min: their cost may be given back. Waiting calls
	// pass in the order of their arrival. 0 denies at once.
	SettleWait time.Duration
	// Lease is the length of a reservation's lease, 1 s to 24 h, extended while the
	// handler runs; 0 is headgate.DefaultLease. It is how long a slot stays taken where
	// the process dies.
	Lease time.Duration
	// MaxWait bounds how long a Client waits for one call in all, beside the
	// call's deadline; 0 is 30 s. A Server ignores it.
	MaxWait time.Duration
}

// gate decides on calls, for servers and clients alike. It never changes after
// newGate.
type gate struct {
	limiter  *headgate.Limiter
	policies []headgate.Policy
	key      Key
	opts     Options
	calls    *settle.Calls // nil: no call is settled
}

// newGate keeps a copy of the limiter's policies: a refusal names them, and
// Policies copies for each call.
func newGate(l *headgate.Limiter, key Key, opts *Options) (gate, error) {
	if opts == nil {
		opts = &Options{}
	}
	if l == nil || len(l.Policies()) == 0 {
		return gate{}, &headgate.InvalidError{What: "limiter", Value: l, Want: "one that headgate.New returned"}
	}
	if key == nil {
		return gate{}, &headgate.InvalidError{What: "key", Value: nil, Want: "a function, as grpclimit.PeerAddress"}
	}
	if err := opts.check(); err != nil {
		return gate{}, err
	}
	g := gate{limiter: l, policies: l.Policies(), key: key, opts: *opts}
	if opts.Settle != nil || settle.Needed(l) {
		g.calls = &settle.Calls{Limiter: l, Lease: opts.Lease, Wait: opts.SettleWait}
	}
	return g, nil
}

func (o *Options) check() error {
	if o.EmptyKey > EmptyPasses {
		return &headgate.InvalidError{What: "EmptyKey", Value: o.EmptyKey, Want: "a constant of package grpclimit, as EmptyRefused"}
	}
	if o.MaxWait < 0 {
		return &headgate.InvalidError{What: "MaxWait", Value: o.MaxWait, Want: "at least 0"}
	}
	return settle.Check(o.Lease, o.SettleWait, o.Settle != nil)
}

// admit returns the error of a call that does not pass. The delay is the time after
// which it passes, 0 where waiting does not help. A call that is to be settled when it
// has ended is not nil.
func (g *gate) admit(ctx context.Context, rpc RPC) (*settle.Call, time.Duration, error) {
	if g.limiter == nil {
		return nil, 0, status.Error(codes.Internal, "grpclimit: zero Server or Client")
	}
	if g.opts.Skip != nil && g.opts.Skip(ctx, rpc) {
		return nil, 0, nil
	}
	call, err := g.key(ctx, rpc)
	if err != nil {
		return nil, 0, keyFailed(err)
	}
	if call.Key == "" {
		switch g.opts.EmptyKey {
		case EmptyPasses:
			return nil, 0, nil
		case EmptyRefused:
			return nil, 0, status.Error(codes.InvalidArgument, "rate limit: the call has no key")
		}
		call.Key = sharedKey
	}
	if call.Costs == nil && g.opts.Cost != nil {
		call.Costs = g.opts.Cost(ctx, rpc)
	}
	return g.decide(ctx, call)
}

// decide turns the limiter's answer into a status. A client that left is asked
// for only where no store decided, so that logs show a denial as a denial.
func (g *gate) decide(ctx context.Context, call headgate.Call) (*settle.Call, time.Duration, error) {
	if call.Each == nil {
		call.Each = make([]headgate.State, len(g.policies)) // a refusal names each policy that denied
	}
	settled, d, err := g.ask(ctx, call)
	switch {
	case err == nil && d.Allowed:
		return settled, 0, nil
	case err == nil && d.Err != nil && ctx.Err() != nil: // nobody decided, because the client left
		return nil, 0, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, 0, failed(err, g.policies)
	}
	delay, err := denied(d, call.Each, g.policies)
	return nil, delay, err
}

// ask asks the limiter, by a reservation where the call is settled.
func (g *gate) ask(ctx context.Context, call headgate.Call) (*settle.Call, headgate.Decision, error) {
	if g.calls != nil {
		return g.calls.Reserve(ctx, call)
	}
	d, err := g.limiter.Do(ctx, call)
	return nil, d, err
}
