package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var algorithms = []algo.Algorithm{
	algo.FixedWindow(algo.PerMinute(5)), algo.SlidingWindow(algo.PerMinute(5)),
	algo.BucketedWindow(algo.PerMinute(5), 10), algo.SlidingLog(algo.PerMinute(5)),
	algo.TokenBucket(algo.Per(7, time.Minute), 5),
}

// TestSleepingRetryInfoPasses: a client that has nothing of ours sleeps for
// RetryInfo, and its first retry passes; a millisecond less is too early. Its
// sleep moves the store's clock, so that the time is exact.
func TestSleepingRetryInfoPasses(t *testing.T) {
	for _, a := range algorithms {
		for shape, call := range shapes {
			t.Run(a.Kind().String()+"/"+shape, func(t *testing.T) {
				c := newClock()
				s := server(t, limiter(t, c, policy(a)), grpclimit.PeerAddress(), nil)
				cc := dial(t, serve(t, limited(s)...))
				ctx := context.Background()
				for range a.Max() {
					require.NoError(t, call(ctx, cc))
				}
				for range 3 { // a denial costs nothing, so that the delay does not grow
					require.Equal(t, codes.ResourceExhausted, status.Code(call(ctx, cc)))
				}
				delay, ok := grpclimit.RetryDelay(call(ctx, cc))
				require.True(t, ok)
				c.advance(delay - time.Millisecond)
				require.Equal(t, codes.ResourceExhausted, status.Code(call(ctx, cc)))
				c.advance(time.Millisecond)
				require.NoError(t, call(ctx, cc))
			})
		}
	}
}

// TestShadow: a refusal names no shadow policy, also one that would have denied too.
func TestShadow(t *testing.T) {
	tighter := headgate.Policy{Name: "tighter", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed, Shadow: true}
	l := limiter(t, newClock(), tighter, policy(algo.FixedWindow(algo.PerMinute(2))))
	cost := int64(1)
	s := server(t, l, grpclimit.PeerAddress(), &grpclimit.Options{
		Cost: func(context.Context, grpclimit.RPC) []int64 { return []int64{1, cost} },
	})
	cc := dial(t, serve(t, limited(s)...))
	refused := func() []string {
		var names []string
		for _, d := range status.Convert(shapes["unary"](context.Background(), cc)).Details() {
			if q, ok := d.(*errdetails.QuotaFailure); ok {
				for _, v := range q.GetViolations() {
					names = append(names, v.GetSubject())
				}
			}
		}
		return names
	}
	for range 2 {
		require.Empty(t, refused())
	}
	require.Equal(t, []string{"api"}, refused())
	cost = 3
	require.Equal(t, []string{"api"}, refused(), "a cost that can never pass")
}

const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 2, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// TestRetryPolicy: grpc-go's own retry policy obeys the trailer: two attempts
// are enough, in real time, for streams of both kinds too.
func TestRetryPolicy(t *testing.T) {
	for shape, call := range shapes {
		t.Run(shape, func(t *testing.T) {
			l := limiter(t, nil, policy(algo.SlidingLog(algo.Per(1, 100*time.Millisecond))))
			cc := dial(t, serve(t, limited(server(t, l, grpclimit.PeerAddress(), nil))...),
				grpc.WithDefaultServiceConfig(retryPolicy))
			for range 3 {
				require.NoError(t, call(context.Background(), cc))
			}
		})
	}
}

// TestPushbackKeepsTheDeadline: where the delay passes the deadline, a client with
// a retry policy gets the refusal at once, not DEADLINE_EXCEEDED at the end.
func TestPushbackKeepsTheDeadline(t *testing.T) {
	l := limiter(t, newClock(), policy(algo.SlidingLog(algo.PerHour(1))))
	cc := dial(t, serve(t, limited(server(t, l, grpclimit.PeerAddress(), nil))...),
		grpc.WithDefaultServiceConfig(retryPolicy))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, shapes["unary"](ctx, cc))
	require.Equal(t, codes.ResourceExhausted, status.Code(shapes["unary"](ctx, cc)))
}

// TestKeyErrorsAreRetried: a client retries an UNAVAILABLE of the key's function by its own
// policy, as after an interceptor of the service.
func TestKeyErrorsAreRetried(t *testing.T) {
	l, failures := limiter(t, newClock(), policy(algo.FixedWindow(algo.PerHour(10)))), atomic.Int64{}
	key := grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) {
		if failures.Add(1) <= 1 {
			return headgate.Call{}, status.Error(codes.Unavailable, "sessions are away")
		}
		return headgate.Call{Key: "k"}, nil
	})
	cc := dial(t, serve(t, limited(server(t, l, key, nil))...), grpc.WithDefaultServiceConfig(retryPolicy))
	require.NoError(t, shapes["unary"](t.Context(), cc))
}

func details(t *testing.T, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("unexpected detail %T", d)
		}
	}
	return retry, quota
}

func TestQuotaFailureNamesThePoliciesThatDenied(t *testing.T) {
	l := limiter(t, newClock(),
		headgate.Policy{Name: "second", Algorithm: algo.SlidingLog(algo.PerSecond(1)), OnFailure: headgate.FailOpen},
		headgate.Policy{Name: "minute", Algorithm: algo.SlidingLog(algo.PerMinute(9)), OnFailure: headgate.FailOpen},
		headgate.Policy{Name: "hour", Algorithm: algo.SlidingLog(algo.PerHour(1)), OnFailure: headgate.FailOpen})
	cc := dial(t, serve(t, limited(server(t, l, grpclimit.PeerAddress(), nil))...))
	require.NoError(t, shapes["unary"](context.Background(), cc))
	err := shapes["unary"](context.Background(), cc)
	require.Equal(t, "rate limit reached: retry in 1h0m0s", status.Convert(err).Message())
	retry, quota := details(t, err)
	require.Equal(t, time.Hour, retry.GetRetryDelay().AsDuration())
	require.Len(t, quota.GetViolations(), 2)
	require.Equal(t, "second", quota.GetViolations()[0].GetSubject())
	require.Equal(t, "hour", quota.GetViolations()[1].GetSubject())
	require.Equal(t, "SlidingLog(1 per 1h0m0s)", quota.GetViolations()[1].GetDescription())
}

// TestFailureModes: nobody listens on port 1.
func TestFailureModes(t *testing.T) {
	for mode, want := range map[headgate.FailureMode]codes.Code{
		headgate.FailOpen: codes.OK, headgate.FailClosed: codes.Unavailable, headgate.FailLocal: codes.OK,
	} {
		store, err := standalone.Open("redis://127.0.0.1:1", nil)
		require.NoError(t, err)
		defer store.Close()
		l, err := headgate.New(store, []headgate.Policy{
			{Name: "api", Algorithm: algo.SlidingLog(algo.PerHour(1)), OnFailure: mode},
		}, &headgate.Options{Instances: 1})
		require.NoError(t, err)
		cc := dial(t, serve(t, limited(server(t, l, grpclimit.PeerAddress(), nil))...))
		for shape, call := range shapes {
			err = call(context.Background(), cc)
			if mode == headgate.FailLocal && status.Code(err) == codes.ResourceExhausted {
				continue // the share is one call
			}
			require.Equal(t, want, status.Code(err), shape)
			if mode == headgate.FailClosed {
				retry, quota := details(t, err)
				require.Equal(t, time.Second, retry.GetRetryDelay().AsDuration())
				require.Nil(t, quota, "nobody counted")
				require.NotContains(t, err.Error(), "127.0.0.1", "no server of ours is named")
			}
		}
	}
}

func TestErrors(t *testing.T) {
	closed := memory.New(nil)
	onClosed, err := headgate.New(closed, []headgate.Policy{policy(algorithms[0])}, nil)
	require.NoError(t, err)
	closed.Close()
	good := limiter(t, newClock(), policy(algorithms[0]))
	constant := func(c headgate.Call, err error) grpclimit.Key {
		return grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) { return c, err })
	}
	cost := func(n int64) *grpclimit.Options {
		return &grpclimit.Options{Cost: func(context.Context, grpclimit.RPC) []int64 { return []int64{n} }}
	}
	for name, c := range map[string]struct {
		s    *grpclimit.Server
		want codes.Code
	}{
		"closed store":     {server(t, onClosed, grpclimit.PeerAddress(), nil), codes.Unavailable},
		"never admissible": {server(t, good, grpclimit.PeerAddress(), cost(6)), codes.InvalidArgument},
		"cost 2^62":        {server(t, good, grpclimit.PeerAddress(), cost(1<<62)), codes.InvalidArgument},
		"cost -1":          {server(t, good, grpclimit.PeerAddress(), cost(-1)), codes.InvalidArgument},
		"key too long":     {server(t, good, constant(headgate.Call{Key: strings.Repeat("x", 4097)}, nil), nil), codes.InvalidArgument},
		"no key":           {server(t, good, constant(headgate.Call{}, nil), nil), codes.InvalidArgument},
		"blocked":          {server(t, good, constant(headgate.Call{}, headgate.ErrBlocked), nil), codes.PermissionDenied},
		"key's status": {server(t, good, constant(headgate.Call{}, status.Error(codes.Unauthenticated, "who?")), nil),
			codes.Unauthenticated},
		"key's deadline": {server(t, good, constant(headgate.Call{}, fmt.Errorf("look-up: %w", context.DeadlineExceeded)), nil),
			codes.DeadlineExceeded},
		"key's cancellation": {server(t, good, constant(headgate.Call{}, context.Canceled), nil), codes.Canceled},
		"key's error":        {server(t, good, constant(headgate.Call{}, errors.New("secret")), nil), codes.Internal},
		"costs too few":      {server(t, good, constant(headgate.Call{Key: "k", Costs: []int64{}}, nil), nil), codes.Internal},
		"each too long": {server(t, good, constant(headgate.Call{Key: "k", Each: make([]headgate.State, 2)}, nil), nil),
			codes.Internal},
		"zero server": {&grpclimit.Server{}, codes.Internal},
	} {
		cc := dial(t, serve(t, limited(c.s)...))
		err := shapes["unary"](context.Background(), cc)
		require.Equal(t, c.want, status.Code(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), "secret")
		retry, _ := details(t, err)
		require.Nil(t, retry, name)
		if name == "never admissible" {
			require.ErrorContains(t, err, `grant: cost 6: want 0 to 5 for policy "api"`)
		}
	}
	d, err := good.Peek(context.Background(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Zero(t, d.Used)
}

func TestClientThatLeft(t *testing.T) {
	s := server(t, limiter(t, newClock(), policy(algorithms[0])), grpclimit.FullMethod(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, nil)
	require.Equal(t, codes.Canceled, status.Code(err))
	ctx, cancel = context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	_, err = s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, nil)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
}

func TestSkipAndCost(t *testing.T) {
	l := limiter(t, newClock(), policy(algorithms[0]))
	s := server(t, l, grpclimit.FullMethod(), &grpclimit.Options{
		Skip: func(_ context.Context, rpc grpclimit.RPC) bool { return rpc.FullMethod == "/s/free" },
		Cost: func(_ context.Context, rpc grpclimit.RPC) []int64 { return []int64{rpc.Request.(int64)} },
	})
	call := func(method string, cost int64) error {
		_, err := s.Unary(context.Background(), cost, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	for range 10 {
		require.NoError(t, call("/s/free", 5))
	}
	require.NoError(t, call("/s/costly", 4))
	require.Equal(t, codes.ResourceExhausted, status.Code(call("/s/costly", 2)))
	require.NoError(t, call("/s/costly", 1))
	require.NoError(t, call("/s/other", 5), "a method has a count of its own")
}

func TestEmptyKey(t *testing.T) {
	for choice, want := range map[grpclimit.EmptyKey][]codes.Code{
		grpclimit.EmptyRefused: {codes.InvalidArgument, codes.InvalidArgument},
		grpclimit.EmptyShared:  {codes.OK, codes.ResourceExhausted},
		grpclimit.EmptyPasses:  {codes.OK, codes.OK},
	} {
		l := limiter(t, newClock(), policy(algo.SlidingLog(algo.PerMinute(1))))
		cc := dial(t, serve(t, limited(server(t, l, grpclimit.Metadata("x-api-key"),
			&grpclimit.Options{EmptyKey: choice}))...))
		empty := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "")
		require.Equal(t, want[0], status.Code(shapes["unary"](context.Background(), cc)))
		require.Equal(t, want[1], status.Code(shapes["unary"](empty, cc)))
	}
}

func TestRefusedArguments(t *testing.T) {
	good := limiter(t, newClock(), policy(algorithms[0]))
	for name, f := range map[string]func() error{
		"no limiter": func() error { _, err := grpclimit.New(nil, grpclimit.PeerAddress(), nil); return err },
		"zero limiter": func() error {
			_, err := grpclimit.New(&headgate.Limiter{}, grpclimit.PeerAddress(), nil)
			return err
		},
		"no key": func() error { _, err := grpclimit.New(good, grpclimit.Key{}, nil); return err },
		"empty key": func() error {
			_, err := grpclimit.New(good, grpclimit.PeerAddress(), &grpclimit.Options{EmptyKey: 3})
			return err
		},
		"client's key": func() error { _, err := grpclimit.NewClient(good, grpclimit.Key{}, nil); return err },
		"client's Settle": func() error {
			_, err := grpclimit.NewClient(nil, grpclimit.Key{}, &grpclimit.Options{Settle: grpclimit.Reported})
			return err
		},
		"client's limiter": func() error { _, err := grpclimit.NewClient(nil, grpclimit.FullMethod(), nil); return err },
		"client's wait": func() error {
			_, err := grpclimit.NewClient(nil, grpclimit.Key{}, &grpclimit.Options{MaxWait: -1})
			return err
		},
	} {
		var invalid *headgate.InvalidError
		require.ErrorAs(t, f(), &invalid, name)
	}
}

// TestClientThatLeavesMeanwhile: a call that nobody decided because its client
// left is not told that the limiter failed.
func TestClientThatLeavesMeanwhile(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	store, err := standalone.Open("redis://"+p.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{policy(algorithms[0])}, nil)
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "warm")
	require.NoError(t, err)
	p.Set(redistest.LoseReply)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = server(t, l, grpclimit.FullMethod(), nil).Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, nil)
	require.Equal(t, 1, p.Hit())
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	retry, _ := details(t, err)
	require.Nil(t, retry)
}

// TestSleepingRetryInfoPassesOnRedis: the same in real time, where the count and
// the clock are a server's and the client's timer is its own.
func TestSleepingRetryInfoPassesOnRedis(t *testing.T) {
	store, err := standalone.Open("redis://"+redistest.Shared(t).Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	limit := algo.Per(1, 20*time.Millisecond)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(limit), algo.SlidingWindow(limit), algo.BucketedWindow(limit, 10), algo.SlidingLog(limit),
		algo.TokenBucket(limit, 1),
	} {
		for shape, call := range shapes {
			t.Run(a.Kind().String()+"/"+shape, func(t *testing.T) {
				l, err := headgate.New(store, []headgate.Policy{policy(a)}, nil)
				require.NoError(t, err)
				key := grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) {
					return headgate.Call{Key: t.Name()}, nil
				})
				cc := dial(t, serve(t, limited(server(t, l, key, nil))...))
				denied := 0
				for range 10 {
					err := call(context.Background(), cc)
					if delay, ok := grpclimit.RetryDelay(err); ok {
						denied++
						time.Sleep(delay)
						err = call(context.Background(), cc)
					}
					require.NoError(t, err)
				}
				t.Logf("%d of 10 calls were denied; each passed at its first retry", denied)
			})
		}
	}
}

// TestUnregisteredMethods: a server that takes any method does not give each name
// its own limit, and a long one is no error.
func TestUnregisteredMethods(t *testing.T) {
	l := limiter(t, newClock(), policy(algo.SlidingLog(algo.PerHour(3))))
	unknown := grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unimplemented, "any")
	})
	cc := dial(t, serve(t, append(limited(server(t, l, grpclimit.FullMethod(), nil)), unknown)...))
	for i, method := range []string{"/a/b", "/grpc.health.v1.Health/Nothing", "/" + strings.Repeat("x", 5000) + "/y", "/c/d"} {
		want := codes.Unimplemented
		if i == 3 {
			want = codes.ResourceExhausted
		}
		err := cc.Invoke(context.Background(), method, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
		require.Equal(t, want, status.Code(err), "%.40s: %v", method, err)
	}
	for shape, call := range shapes {
		require.NoError(t, call(context.Background(), cc), "%s: a registered method has its own limit", shape)
	}
}
