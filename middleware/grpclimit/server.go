package grpclimit

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/settle"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Server limits the calls that a gRPC server gets. Make one with New; its
// methods are interceptors. It is safe for concurrent use.
type Server struct{ gate *gate }

// New returns a server's interceptors. It refuses a limiter or a key that
// is nil, and options out of range, with an *headgate.InvalidError.
//
// Two servers of one chain need policies of different names. With the same name,
// algorithm, period and key both charge one count, and each call counts twice. The
// limiter's Logger gets a warning if a call of this process meets both. A call that the
// inner one refuses stays charged to the outer one; NewAll charges all or none.
func New(l *headgate.Limiter, key Key, opts *Options) (*Server, error) {
	g, err := newGate(l, key, opts)
	if err != nil {
		return nil, err
	}
	return &Server{g}, nil
}

// NewAll returns a server's interceptors that decide each call by the parts that
// the function returns for it. These are limiters of several keys, such as a user and the
// user's organisation, or the limiter of a customer's plan. The call passes if every part
// allows it, and else is charged to none; see headgate.All. No parts are no limit. An
// error refuses the call, as that of a Key. If no part is returned beside an error without a
// status, gRPC's own logger gets it, at most once per second. Options.Cost must be nil: the
// parts have the costs.
func NewAll(parts func(context.Context, RPC) ([]headgate.Part, error), opts *Options) (*Server, error) {
	return newParts(parts, opts, false)
}

// NewFirst returns a server's interceptors that decide each call by the first part that has room,
// and charge no other; see headgate.First. All else is as NewAll has it. Outcome and a refusal have
// the policies of the part that was charged, or that denies. If no store answers it is not known
// which part was charged. Then what a call has used is settled for each part by the names of the
// policies. Options.Messages are decided as in NewAll.
func NewFirst(parts func(context.Context, RPC) ([]headgate.Part, error), opts *Options) (*Server, error) {
	return newParts(parts, opts, true)
}

func newParts(parts func(context.Context, RPC) ([]headgate.Part, error), opts *Options, first bool) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	switch {
	case parts == nil:
		return nil, &headgate.InvalidError{What: "parts", Value: nil, Want: "a function"}
	case opts.Cost != nil:
		return nil, &headgate.InvalidError{What: "Cost", Value: "a function", Want: "nil with NewAll and NewFirst, whose parts have the costs"}
	}
	g, err := newGateAll(parts, opts)
	if err != nil {
		return nil, err
	}
	g.first = first
	return &Server{g}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	rpc := RPC{FullMethod: info.FullMethod, Request: req}
	ctx, call, err := s.admit(ctx, rpc)
	if err != nil {
		return nil, err
	}
	if call == nil {
		return next(ctx, req)
	}
	return s.gate.run(call, rpc, func(ctx context.Context) (any, error) { return next(ctx, req) })
}

// Stream is a grpc.StreamServerInterceptor. A stream counts once, when it opens, and
// holds a slot of an InFlight policy until its handler returns. Options.Messages counts
// its messages too.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	rpc := RPC{FullMethod: info.FullMethod, Stream: true, Unregistered: srv == nil}
	ctx, call, err := s.admit(ss.Context(), rpc)
	if err != nil {
		return err
	}
	handle := func(ctx context.Context) (any, error) { return nil, s.gate.stream(ctx, rpc, ss, srv, next) }
	if call == nil {
		_, err = handle(ctx)
		return err
	}
	_, err = s.gate.run(call, rpc, handle)
	return err
}

// pushback is the trailer that grpc-go's retry policy obeys.
const pushback = "grpc-retry-pushback-ms"

// admit sets the trailer of every refusal by a limiter: without one, grpc-go's retry policy
// would choose its own delay. It does so after an error of the key's function.
func (s *Server) admit(ctx context.Context, rpc RPC) (context.Context, *settle.Call, error) {
	passed, call, delay, err := s.gate.admit(ctx, rpc)
	//mutant:pushback-of-limiters
	if err != nil && delay != notAsked {
		// It fails only outside of a server, where no client reads trailers.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, pushbackMillis(ctx, delay)))
	}
	return passed, call, err
}

// pushbackMillis is negative, which means "do not retry", where waiting does not
// help or the client's deadline comes first.
func pushbackMillis(ctx context.Context, delay time.Duration) string {
	deadline, ok := ctx.Deadline()
	if delay <= 0 || ok && time.Until(deadline) < delay {
		return "-1"
	}
	return strconv.FormatInt(delay.Milliseconds(), 10)
}
