package grpclimit

import (
	"context"
	"time"

	"github.com/headgate-go/headgate"
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
	return gate{l, l.Policies(), key, *opts}, nil
}

func (o *Options) check() error {
	if o.EmptyKey > EmptyPasses {
		return &headgate.InvalidError{What: "EmptyKey", Value: o.EmptyKey, Want: "one of this package's constants"}
	}
	if o.MaxWait < 0 {
		return &headgate.InvalidError{What: "MaxWait", Value: o.MaxWait, Want: "at least 0"}
	}
	return nil
}

// admit returns nil for a call that passes, and the error for another. The
// delay is the time after which it passes, 0 where waiting does not help. It
// runs before the call; limits on calls in flight will settle after it.
func (g *gate) admit(ctx context.Context, rpc RPC) (time.Duration, error) {
	if g.limiter == nil {
		return 0, status.Error(codes.Internal, "grpclimit: zero Server or Client")
	}
	if g.opts.Skip != nil && g.opts.Skip(ctx, rpc) {
		return 0, nil
	}
	call, err := g.key(ctx, rpc)
	if err != nil {
		return 0, keyFailed(err)
	}
	if call.Key == "" {
		switch g.opts.EmptyKey {
		case EmptyPasses:
			return 0, nil
		case EmptyRefused:
			return 0, status.Error(codes.InvalidArgument, "rate limit: the call has no key")
		}
		call.Key = sharedKey
	}
	return g.decide(ctx, rpc, call)
}

// decide turns the limiter's answer into a status. A client that left is asked
// for only where no store decided, so that logs show a denial as a denial.
func (g *gate) decide(ctx context.Context, rpc RPC, call headgate.Call) (time.Duration, error) {
	if call.Costs == nil && g.opts.Cost != nil {
		call.Costs = g.opts.Cost(ctx, rpc)
	}
	if call.Each == nil {
		call.Each = make([]headgate.State, len(g.policies)) // a refusal names each policy that denied
	}
	d, err := g.limiter.Do(ctx, call)
	switch {
	case err == nil && d.Allowed:
		return 0, nil
	case err == nil && d.Err != nil && ctx.Err() != nil: // nobody decided, because the client left
		return 0, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return 0, failed(err, g.policies)
	}
	return denied(d, call.Each, g.policies)
}
