package grpclimit

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate-go/headgate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Server limits the calls that a gRPC server gets. Make one with NewServer; its
// methods are interceptors. It is safe for concurrent use.
type Server struct{ gate gate }

// NewServer returns a server's interceptors. It refuses a limiter or a key that
// is nil, and options out of range, with an *headgate.InvalidError.
func NewServer(l *headgate.Limiter, key Key, opts *Options) (*Server, error) {
	g, err := newGate(l, key, opts)
	if err != nil {
		return nil, err
	}
	return &Server{g}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if err := s.admit(ctx, RPC{FullMethod: info.FullMethod, Request: req}); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor. A stream counts once, when it opens.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	rpc := RPC{FullMethod: info.FullMethod, Stream: true, Unregistered: srv == nil}
	if err := s.admit(ss.Context(), rpc); err != nil {
		return err
	}
	return next(srv, ss)
}

// pushback is the trailer that grpc-go's retry policy obeys.
const pushback = "grpc-retry-pushback-ms"

// admit sets the trailer of every refusal: without one, grpc-go's retry policy
// would choose its own delay.
func (s *Server) admit(ctx context.Context, rpc RPC) error {
	delay, err := s.gate.admit(ctx, rpc)
	if err != nil {
		// It fails only outside of a server, where nobody reads trailers.
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, pushbackMillis(ctx, delay)))
	}
	return err
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
