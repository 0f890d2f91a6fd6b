package grpclimit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// used is what the policies of a limiter count of a key.
func used(t *testing.T, l *headgate.Limiter, key string) (all []int64) {
	t.Helper()
	each := make([]headgate.State, len(l.Policies()))
	_, err := l.Peek(t.Context(), headgate.Call{Key: key, Costs: make([]int64, len(each)), Each: each})
	require.NoError(t, err)
	for _, s := range each {
		all = append(all, s.Used)
	}
	return all
}

func one(context.Context, grpclimit.RPC) (headgate.Call, error) {
	return headgate.Call{Key: "one"}, nil
}

var unary = &grpc.UnaryServerInfo{FullMethod: "/s/m"}

// TestSlots: a stream and a unary call hold a slot while they run, over a real
// connection. A denied one costs no other policy anything.
func TestSlots(t *testing.T) {
	l := limiter(t, nil,
		headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "rate", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed})
	cc := dial(t, serve(t, limited(server(t, l, grpclimit.Func(one), nil))...))
	calls := int64(0)
	for shape, call := range shapes {
		require.NoError(t, call(t.Context(), cc), shape)
		calls++
		require.Eventually(t, func() bool { return used(t, l, "one")[0] == 0 }, 10*time.Second, time.Millisecond, shape)
	}
	ctx, leave := context.WithCancel(t.Context())
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return used(t, l, "one")[0] == 1 }, 10*time.Second, time.Millisecond)
	for shape, call := range shapes {
		require.Equal(t, codes.ResourceExhausted, status.Code(call(t.Context(), cc)), shape)
	}
	require.Equal(t, []int64{1, calls + 1}, used(t, l, "one"))
	leave()
	require.Error(t, stream.RecvMsg(nil))
	require.Eventually(t, func() bool { return used(t, l, "one")[0] == 0 }, 10*time.Second, time.Millisecond)
}

// TestOutcomes: what a Settle gets of each way to end, and what stands afterwards.
func TestOutcomes(t *testing.T) {
	failed := status.Error(codes.PermissionDenied, "no")
	for name, c := range map[string]struct {
		handler func(context.Context) (any, error)
		settle  func(*testing.T, *grpclimit.Outcome) []int64
		used    int64
	}{
		"reported": {func(ctx context.Context) (any, error) { grpclimit.Report(ctx, 7); return "r", nil },
			func(t *testing.T, o *grpclimit.Outcome) []int64 {
				require.Equal(t, "r", o.Response)
				require.Equal(t, []int64{40}, o.Estimate)
				require.Equal(t, grpclimit.RPC{FullMethod: "/s/m", Request: "q"}, o.RPC)
				return grpclimit.Reported(o)
			}, 7},
		"error": {func(context.Context) (any, error) { return nil, failed },
			func(t *testing.T, o *grpclimit.Outcome) []int64 { require.Equal(t, failed, o.Err); return nil }, 40},
		"panic": {func(context.Context) (any, error) { panic("oops") },
			func(t *testing.T, o *grpclimit.Outcome) []int64 { require.True(t, o.Panicked); return []int64{50} }, 50},
		"settle panics":            {func(context.Context) (any, error) { return nil, nil }, func(*testing.T, *grpclimit.Outcome) []int64 { panic("oops") }, 40},
		"a list that does not fit": {func(context.Context) (any, error) { return nil, nil }, func(*testing.T, *grpclimit.Outcome) []int64 { return []int64{1, 2} }, 40},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, nil, policy(algo.SlidingLog(algo.PerDay(100))))
			settled := 0
			s := server(t, l, grpclimit.Func(one), &grpclimit.Options{
				Cost:   func(context.Context, grpclimit.RPC) []int64 { return []int64{40} },
				Settle: func(o *grpclimit.Outcome) []int64 { settled++; return c.settle(t, o) },
			})
			func() {
				defer func() { require.Equal(t, name == "panic" || name == "settle panics", recover() != nil) }()
				_, _ = s.Unary(t.Context(), "q", unary, func(ctx context.Context, _ any) (any, error) { return c.handler(ctx) })
			}()
			require.Equal(t, 1, settled)
			require.Equal(t, []int64{c.used}, used(t, l, "one"))
		})
	}
}

// TestSettled: the states after the settlement, which a trailer can have.
func TestSettled(t *testing.T) {
	l := limiter(t, nil, policy(algo.SlidingLog(algo.PerDay(100))))
	s := server(t, l, grpclimit.Func(one), &grpclimit.Options{
		Cost:   func(context.Context, grpclimit.RPC) []int64 { return []int64{40} },
		Settle: func(*grpclimit.Outcome) []int64 { return []int64{7} },
		Settled: func(o *grpclimit.Outcome) {
			require.NoError(t, grpc.SetTrailer(o.Context, metadata.Pairs("units-left", fmt.Sprint(o.States[0].Remaining))))
		},
	})
	cc := dial(t, serve(t, limited(s)...))
	for _, want := range []string{"93", "86"} {
		var trailer metadata.MD
		_, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
		require.NoError(t, err)
		require.Equal(t, []string{want}, trailer.Get("units-left"))
	}
	_, err := grpclimit.New(l, grpclimit.Func(one), &grpclimit.Options{Settled: func(*grpclimit.Outcome) {}})
	require.ErrorAs(t, err, new(*headgate.InvalidError), "it needs Settle")
}

// TestFailuresAlone: the sixth failed call is refused, whatever number succeeded, under
// 64 callers.
func TestFailuresAlone(t *testing.T) {
	s := server(t, limiter(t, nil, policy(algo.SlidingLog(algo.Per(5, 15*time.Minute)))), grpclimit.Func(one), &grpclimit.Options{
		SettleWait: time.Minute,
		Settle: func(o *grpclimit.Outcome) []int64 {
			if status.Code(o.Err) == codes.Unauthenticated {
				return nil
			}
			return []int64{0}
		},
	})
	run := func(n int, answer error) map[codes.Code]int {
		var mu sync.Mutex
		var callers sync.WaitGroup
		got := map[codes.Code]int{}
		for range 64 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for range n {
					_, err := s.Unary(t.Context(), nil, unary, func(context.Context, any) (any, error) { return nil, answer })
					mu.Lock()
					got[status.Code(err)]++
					mu.Unlock()
				}
			}()
		}
		callers.Wait()
		return got
	}
	require.Equal(t, map[codes.Code]int{codes.OK: 1024}, run(16, nil))
	bad := status.Error(codes.Unauthenticated, "no")
	require.Equal(t, map[codes.Code]int{codes.Unauthenticated: 5, codes.ResourceExhausted: 123}, run(2, bad))
}

// TestClientsDoNotSettle: a client has no handler whose end it could wait for.
func TestClientsDoNotSettle(t *testing.T) {
	settles := &grpclimit.Options{Settle: grpclimit.Reported}
	_, err := grpclimit.NewClient(limiter(t, nil, policy(algo.InFlight(1))), grpclimit.Func(one), nil)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, err = grpclimit.NewClient(limiter(t, nil, policy(algo.FixedWindow(algo.PerDay(1)))), grpclimit.Func(one), settles)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, err = grpclimit.New(limiter(t, nil, policy(algo.InFlight(1))), grpclimit.Func(one), &grpclimit.Options{Lease: 1})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}
