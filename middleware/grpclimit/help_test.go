package grpclimit_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// clock is a store's clock that only a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_745_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func policy(a algo.Algorithm) headgate.Policy {
	return headgate.Policy{Name: "api", Algorithm: a, OnFailure: headgate.FailClosed}
}

// limiter counts in memory, by the clock of c, or by the real one where it is nil.
func limiter(t testing.TB, c *clock, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	opts := &memory.Options{}
	if c != nil {
		opts.Now = c.Now
	}
	store := memory.New(opts)
	t.Cleanup(func() { store.Close() })
	l, err := headgate.New(store, policies, nil)
	require.NoError(t, err)
	return l
}

func server(t testing.TB, l *headgate.Limiter, key grpclimit.Key, opts *grpclimit.Options) *grpclimit.Server {
	t.Helper()
	s, err := grpclimit.New(l, key, opts)
	require.NoError(t, err)
	return s
}

// serve runs a real server on 127.0.0.1 with the interceptors, and returns its
// address. It has health (unary Check, Watch with one message from the client)
// and reflection (many messages from both).
func serve(t testing.TB, opts ...grpc.ServerOption) string {
	t.Helper()
	g := grpc.NewServer(opts...)
	healthpb.RegisterHealthServer(g, health.NewServer())
	reflection.Register(g)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = g.Serve(ln) }()
	t.Cleanup(g.Stop)
	return ln.Addr().String()
}

func limited(s *grpclimit.Server) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient(addr, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// The three shapes of a call, each by the code that protoc generated.
var shapes = map[string]func(context.Context, *grpc.ClientConn) error{
	"unary": func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	},
	"server stream": func(ctx context.Context, cc *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := healthpb.NewHealthClient(cc).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	},
	"two-way stream": func(ctx context.Context, cc *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		list := &reflectionpb.ServerReflectionRequest_ListServices{ListServices: "*"}
		_ = s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: list}) // io.EOF where it was refused; Recv says why
		_, err = s.Recv()
		return err
	},
}
