package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

func rule(name string, a algo.Algorithm) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}
}

// answer is a handler that answers nothing.
func answer(context.Context, any) (any, error) { return nil, nil }

// TestParts: a call passes if every part allows it, and else is charged to none.
func TestParts(t *testing.T) {
	store := memory.New(nil)
	user, err := headgate.New(store, []headgate.Policy{rule("requests", algo.SlidingLog(algo.PerHour(5)))}, nil)
	require.NoError(t, err)
	org, err := user.With(rule("tokens", algo.SlidingLog(algo.PerHour(100))), rule("running", algo.InFlight(1)))
	require.NoError(t, err)
	s, err := grpclimit.NewAll(func(context.Context, grpclimit.RPC) ([]headgate.Part, error) {
		return []headgate.Part{user.Part("ann"), org.Part("acme", 40, 1)}, nil
	}, &grpclimit.Options{Settle: func(o *grpclimit.Outcome) []int64 {
		require.Equal(t, []string{"requests", "tokens", "running"}, o.Policies)
		require.Equal(t, []int64{1, 40, 1}, o.Estimate)
		require.Equal(t, []int64{1, 45, 1}, o.Reported)
		return o.Units("tokens", 45)
	}})
	require.NoError(t, err)
	handler := func(ctx context.Context, _ any) (any, error) {
		grpclimit.ReportPolicy(ctx, "tokens", 45)
		return nil, nil
	}
	for range 2 {
		_, err = s.Unary(t.Context(), nil, unary, handler)
		require.NoError(t, err)
	}
	_, err = s.Unary(t.Context(), nil, unary, handler)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, quota := details(t, err)
	require.Len(t, quota.Violations, 1)
	require.Equal(t, "tokens", quota.Violations[0].Subject)
	require.Equal(t, []int64{2}, used(t, user, "ann"))
	require.Equal(t, []int64{90, 0}, used(t, org, "acme"))

	none, err := grpclimit.NewAll(func(context.Context, grpclimit.RPC) ([]headgate.Part, error) { return nil, nil }, nil)
	require.NoError(t, err)
	_, err = none.Unary(t.Context(), nil, unary, answer)
	require.NoError(t, err, "no parts are no limit")
	_, err = grpclimit.NewAll(nil, nil)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}

// TestTwoServers of one count are reported once.
func TestTwoServers(t *testing.T) {
	lines := new(bytes.Buffer)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{rule("api", algo.SlidingLog(algo.PerHour(6)))},
		&headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	outer, inner := server(t, l, grpclimit.Func(one), nil), server(t, l, grpclimit.Func(one), nil)
	passed := 0
	for range 6 {
		_, err := outer.Unary(t.Context(), nil, unary, func(ctx context.Context, _ any) (any, error) {
			return inner.Unary(ctx, nil, unary, func(context.Context, any) (any, error) { passed++; return nil, nil })
		})
		if err != nil {
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
		}
	}
	require.Equal(t, 3, passed)
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), lines)
	require.Contains(t, lines.String(), "policy=api")
}

// TestErrorsOfKeys: an error of the key, which is INTERNAL, has a line, at most one per
// second. One with a status of its own, a blocked caller and a client that left have none.
func TestErrorsOfKeys(t *testing.T) {
	for err, want := range map[error]int{
		errors.New("boom"): 1, &grpclimit.RequestError{}: 1, context.Canceled: 0,
		headgate.ErrBlocked: 0, status.Error(codes.Unauthenticated, "who"): 0,
	} {
		lines := new(bytes.Buffer)
		l, newErr := headgate.New(memory.New(nil), []headgate.Policy{policy(algo.SlidingLog(algo.PerHour(6)))},
			&headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
		require.NoError(t, newErr)
		s := server(t, l, grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) { return headgate.Call{}, err }), nil)
		for range 3 {
			_, got := s.Unary(t.Context(), nil, unary, nil)
			require.Error(t, got)
		}
		require.Equal(t, want, strings.Count(lines.String(), "\n"), "%v: %s", err, lines)
		require.Equal(t, want, strings.Count(lines.String(), err.Error()), lines)
	}
}

// errorLines are the errors that gRPC's own logger gets in this process.
var errorLines lockedBuffer

func init() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, &errorLines)) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// TestInternalErrorsAreLogged: an error of the limiter has a line of its Logger, and one
// without a limiter a line of gRPC's logger, at most one per second.
func TestInternalErrorsAreLogged(t *testing.T) {
	lines := new(bytes.Buffer)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{policy(algo.SlidingLog(algo.PerHour(6)))},
		&headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		list      []headgate.Part
		err       error
		log, grpc int
	}{
		"costs":       {[]headgate.Part{l.Part("k", 1, 1)}, nil, 1, 0},
		"no parts":    {nil, errors.New("no parts beside it"), 0, 1},
		"no limiter":  {[]headgate.Part{{Call: headgate.Call{Key: "k"}}}, nil, 0, 1},
		"its mistake": {nil, &grpclimit.RequestError{What: "key", Text: "is odd"}, 0, 0},
	} {
		s, err := grpclimit.NewAll(func(context.Context, grpclimit.RPC) ([]headgate.Part, error) { return c.list, c.err }, nil)
		require.NoError(t, err)
		lines.Reset()
		before := errorLines.count("can't be counted")
		for range 3 {
			_, got := s.Unary(t.Context(), nil, unary, nil)
			require.Error(t, got, name)
			require.Equal(t, c.err == nil || c.grpc > 0, status.Code(got) == codes.Internal, name)
		}
		require.Equal(t, c.log, strings.Count(lines.String(), "\n"), "%s: %s", name, lines)
		require.Equal(t, c.grpc, errorLines.count("can't be counted")-before, name)
	}
}

// TestEqualKeys: parts whose keys a call makes equal, and more of them than a call can have.
func TestEqualKeys(t *testing.T) {
	l := limiter(t, nil, policy(algo.SlidingLog(algo.PerHour(99))))
	many := make([]headgate.Part, 65)
	for i := range many {
		many[i] = l.Part(string(rune('a' + i)))
	}
	for _, opts := range []*grpclimit.Options{nil, {Settle: grpclimit.Reported}} {
		for _, c := range []struct {
			list []headgate.Part
			want codes.Code
		}{{many[:16], codes.OK}, {many, codes.InvalidArgument}, {append(many[1:3:3], many[1]), codes.InvalidArgument}} {
			s, err := grpclimit.NewAll(func(context.Context, grpclimit.RPC) ([]headgate.Part, error) { return c.list, nil }, opts)
			require.NoError(t, err)
			_, err = s.Unary(t.Context(), nil, unary, answer)
			require.Equal(t, c.want, status.Code(err), "%d: %v", len(c.list), err)
		}
	}
}

// TestNamesOfMetadata: what can't be a key is refused when the server is made.
func TestNamesOfMetadata(t *testing.T) {
	l := limiter(t, nil, policy(algo.SlidingLog(algo.PerHour(6))))
	for _, name := range []string{"", "x api key", "X-Forwarded-For", "forwarded", "Authorization", "host", "grpc-timeout", "x\n"} {
		_, err := grpclimit.New(l, grpclimit.Metadata(name), nil)
		require.ErrorAs(t, err, new(*headgate.InvalidError), "%q", name)
		if name == "Authorization" {
			require.ErrorContains(t, err, "grpclimit.Authorization()")
		}
	}
}

// TestSettledIsNotSpread: a limiter that spreads its keys can't settle, which shows when the
// server is made.
func TestSettledIsNotSpread(t *testing.T) {
	spread, err := limiter(t, nil, policy(algo.SlidingLog(algo.PerHour(6)))).WithShards(2)
	require.NoError(t, err)
	_, err = grpclimit.New(spread, grpclimit.PeerAddress(), &grpclimit.Options{Settle: grpclimit.Reported})
	require.ErrorIs(t, err, headgate.ErrUnsupported)
}

// TestAuthorization: all spellings of one value have one key, that of package httplimit.
func TestAuthorization(t *testing.T) {
	of := func(values ...string) (string, error) {
		md := metadata.MD{"authorization": values}
		return grpclimit.Authorization().Of(metadata.NewIncomingContext(context.Background(), md), grpclimit.RPC{})
	}
	want, err := of("Bearer secret")
	require.NoError(t, err)
	require.Regexp(t, `^authorization:[0-9a-f]{32}$`, want)
	for _, v := range []string{"bearer secret", "BEARER  secret", " Bearer secret "} {
		got, err := of(v)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", v)
	}
	want, err = of("Basic YW5uOnNlY3JldA==")
	require.NoError(t, err)
	got, err := of("basic YW5uOnNlY3JldP")
	require.NoError(t, err)
	require.Equal(t, want, got, "one user and password")
	got, err = of()
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = of("Bearer a", "Bearer b")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// perMessage counts each message of a stream.
func perMessage(l *headgate.Limiter) *grpclimit.Options {
	return &grpclimit.Options{Messages: func(_ context.Context, rpc grpclimit.RPC) ([]headgate.Part, error) {
		if rpc.Request.(*reflectionpb.ServerReflectionRequest).GetHost() == "free" {
			return nil, nil
		}
		return []headgate.Part{l.Part("messages")}, nil
	}}
}

// TestMessages: a denied message ends the stream with RetryInfo, and does not reach the
// handler.
func TestMessages(t *testing.T) {
	opens := limiter(t, nil, rule("opens", algo.SlidingLog(algo.PerHour(9))))
	l := limiter(t, nil, rule("messages", algo.SlidingLog(algo.PerHour(3))))
	cc := dial(t, serve(t, limited(server(t, opens, grpclimit.Func(one), perMessage(l)))...))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := reflectionpb.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	require.NoError(t, err)
	send := func(host string) error {
		_ = s.Send(&reflectionpb.ServerReflectionRequest{Host: host, MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{ListServices: "*"}})
		_, err := s.Recv()
		return err
	}
	for range 3 {
		require.NoError(t, send(""))
		require.NoError(t, send("free"))
	}
	err = send("")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, quota := details(t, err)
	require.Positive(t, retry.RetryDelay.AsDuration())
	require.Equal(t, "messages", quota.Violations[0].Subject)
	require.NotEmpty(t, s.Trailer().Get("grpc-retry-pushback-ms"))
	require.Equal(t, []int64{1}, used(t, opens, "one"), "the stream counts once")
	require.Equal(t, []int64{3}, used(t, l, "messages"))
}

// endless is a stream of messages.
type endless struct {
	grpc.ServerStream
	left int
}

func (*endless) Context() context.Context { return context.Background() }
func (s *endless) RecvMsg(any) error {
	if s.left--; s.left < 0 {
		return io.EOF
	}
	return nil
}

// duplex receives in a goroutine of its own, and returns while a message is decided.
type duplex struct {
	reflectionpb.UnimplementedServerReflectionServer
	deciding, ended chan struct{}
}

func (d *duplex) ServerReflectionInfo(s grpc.BidiStreamingServer[reflectionpb.ServerReflectionRequest, reflectionpb.ServerReflectionResponse]) error {
	go func() {
		defer close(d.ended)
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
		}
	}()
	<-d.deciding
	return nil
}

// TestMessageDeniedAsTheHandlerReturns: the race detector finds no race.
func TestMessageDeniedAsTheHandlerReturns(t *testing.T) {
	d := &duplex{deciding: make(chan struct{}), ended: make(chan struct{})}
	messages := limiter(t, nil, policy(algo.FixedWindow(algo.PerHour(1))))
	_, err := messages.Allow(t.Context(), "k")
	require.NoError(t, err)
	opts := &grpclimit.Options{Messages: func(context.Context, grpclimit.RPC) ([]headgate.Part, error) {
		close(d.deciding)
		return []headgate.Part{messages.Part("k")}, nil
	}}
	s := server(t, limiter(t, nil, policy(algo.FixedWindow(algo.PerHour(100)))), grpclimit.PeerAddress(), opts)
	g := grpc.NewServer(limited(s)...)
	reflectionpb.RegisterServerReflectionServer(g, d)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = g.Serve(l) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := reflectionpb.NewServerReflectionClient(dial(t, l.Addr().String())).ServerReflectionInfo(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Send(&reflectionpb.ServerReflectionRequest{}))
	_, err = c.Recv()
	require.Error(t, err) // the stream has ended
	<-d.ended
	g.Stop()
}

func BenchmarkMessages(b *testing.B) {
	l := limiter(b, nil, rule("messages", algo.TokenBucket(algo.PerSecond(1<<30), 1<<30)))
	for name, opts := range map[string]*grpclimit.Options{"counted": perMessage(l), "not counted": nil} {
		b.Run(name, func(b *testing.B) {
			s := server(b, l, grpclimit.Func(one), opts)
			b.ReportAllocs()
			m := new(reflectionpb.ServerReflectionRequest)
			err := s.Stream(b, &endless{left: b.N}, &grpc.StreamServerInfo{FullMethod: "/s/m"}, func(_ any, ss grpc.ServerStream) error {
				for ss.RecvMsg(m) == nil {
				}
				return nil
			})
			require.NoError(b, err)
		})
	}
}
