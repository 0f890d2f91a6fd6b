package grpclimit

import (
	"context"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/settle"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// defaultMaxWait is how long a call without a deadline waits at most.
const defaultMaxWait = 30 * time.Second

// Client makes the calls of a gRPC client wait. It waits before a call that its
// own limiter denies. After a call that a server refused with RetryInfo, it
// waits for the delay in it. Where the wait would pass the call's deadline or
// MaxWait, the call gets the refusal at once.
//
// Make one with NewClient; its methods are interceptors. It is safe for
// concurrent use.
type Client struct{ gate *gate }

// NewClient returns a client's interceptors. The limiter counts a call once,
// however often it is retried. Limiters on one store share their count, so that
// a fleet of clients can stay below a server's limit. Where l is nil nothing is
// counted, the client only obeys RetryInfo, and key is the zero Key too. It refuses what only a
// Server does: policies of calls in flight, and Options.Settle, also where l is nil.
func NewClient(l *headgate.Limiter, key Key, opts *Options) (*Client, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.Settle != nil || settle.Needed(l) {
		return nil, &headgate.InvalidError{What: "client", Value: "Settle, or a policy of calls in flight", Want: "neither: only a Server settles"}
	}
	if l == nil && key.of == nil && key.err == nil {
		return &Client{&gate{opts: *opts}}, opts.check()
	}
	g, err := newGate(l, key, opts)
	return &Client{g}, err
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	w := c.budget()
	if err := c.hold(ctx, RPC{FullMethod: method, Target: cc.Target(), Request: req}, w); err != nil {
		return err
	}
	return w.obey(ctx, func() error { return next(ctx, method, req, reply, cc, opts...) })
}

// Stream is a grpc.StreamClientInterceptor. A refused stream on which the client
// sends one message is opened again. One on which it sends many is not, since
// they would all have to be kept: there RecvMsg returns the refusal.
func (c *Client) Stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	w := c.budget()
	if err := c.hold(ctx, RPC{FullMethod: method, Target: cc.Target(), Stream: true}, w); err != nil {
		return nil, err
	}
	open := func() (grpc.ClientStream, error) { return next(ctx, desc, cc, method, opts...) }
	first, err := open()
	if err != nil || desc.ClientStreams {
		return first, err
	}
	s := &stream{ctx: ctx, open: open, budget: w}
	s.mu.current = first
	return s, nil
}

// budget returns a new one: waits before a call and after its refusals come out
// of the same.
func (c *Client) budget() *budget {
	if c.gate == nil || c.gate.opts.MaxWait == 0 {
		return &budget{left: defaultMaxWait}
	}
	return &budget{left: c.gate.opts.MaxWait}
}

// hold waits until the client's own limiter admits the call.
func (c *Client) hold(ctx context.Context, rpc RPC, w *budget) error {
	if c.gate == nil || c.gate.parts == nil {
		return nil
	}
	return w.obey(ctx, func() error {
		_, _, _, err := c.gate.admit(ctx, rpc)
		return err
	})
}

// budget is how long one call may still wait. One goroutine at a time uses it.
type budget struct {
	left  time.Duration
	waits int
}

// obey calls try until it succeeds, returns no RetryInfo or the budget is spent.
func (b *budget) obey(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		if err = b.wait(ctx, err); err != nil {
			return err
		}
	}
}

// wait waits for the delay that a refusal names and returns nil. Where there is
// none, or it does not fit the budget or the deadline, it returns the refusal
// at once. If ctx ends meanwhile, it returns that error.
func (b *budget) wait(ctx context.Context, refusal error) error {
	delay, ok := RetryDelay(refusal)
	if !ok {
		return refusal
	}
	delay = max(delay, time.Millisecond<<min(b.waits, 20)) // a server that names no time is not asked in a loop
	deadline, ok := ctx.Deadline()
	if delay > b.left || ok && time.Until(deadline) < delay {
		return refusal
	}
	b.left -= delay
	b.waits++
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
