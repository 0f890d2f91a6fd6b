package grpclimit_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// TestNewFirst: a call is charged to the first part that has room, and settled there. A refusal has
// the policies of the part that passes soonest.
func TestNewFirst(t *testing.T) {
	c := newClock()
	tokens := func(name string, n int64) headgate.Policy {
		return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.PerMinute(n)), OnFailure: headgate.FailClosed}
	}
	allowance := limiter(t, c, tokens("allowance", 10))
	credits, err := allowance.With(tokens("credits", 20))
	require.NoError(t, err)
	parts := func(context.Context, grpclimit.RPC) ([]headgate.Part, error) {
		return []headgate.Part{allowance.Part("ann", 10), credits.Part("ann", 10)}, nil
	}
	s, err := grpclimit.NewFirst(parts, &grpclimit.Options{Settle: grpclimit.Reported})
	require.NoError(t, err)
	call := func(used int64) error {
		_, err := s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, func(ctx context.Context, _ any) (any, error) {
			grpclimit.Report(ctx, used)
			return nil, nil
		})
		return err
	}
	for _, used := range []int64{9, 8, 3} {
		require.NoError(t, call(used))
	}
	for l, want := range map[*headgate.Limiter]int64{allowance: 9, credits: 11} {
		d, err := l.Peek(context.Background(), headgate.Call{Key: "ann"})
		require.NoError(t, err)
		require.Equal(t, want, d.Used)
	}
	require.Equal(t, []string{"allowance"}, refusedBy(t, call(1)))
	_, err = grpclimit.NewFirst(nil, nil)
	require.Error(t, err)
}

// refusedBy returns the policies that a refusal names.
func refusedBy(t *testing.T, err error) (policies []string) {
	t.Helper()
	refused, ok := status.FromError(err)
	require.True(t, ok)
	for _, detail := range refused.Details() {
		if q, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range q.Violations {
				policies = append(policies, v.Subject)
			}
		}
	}
	return policies
}

// TestRefusalOfItsPart: the second part passes sooner than the first one, which has two keys.
func TestRefusalOfItsPart(t *testing.T) {
	c := newClock()
	a := limiter(t, c, headgate.Policy{Name: "allowance", Algorithm: algo.SlidingLog(algo.PerMinute(1)), OnFailure: headgate.FailClosed})
	b, err := a.With(headgate.Policy{Name: "credits", Algorithm: algo.SlidingLog(algo.PerSecond(1)), OnFailure: headgate.FailClosed})
	require.NoError(t, err)
	s, err := grpclimit.NewFirst(func(context.Context, grpclimit.RPC) ([]headgate.Part, error) {
		own := a.Part("ann")
		own.And = []headgate.Part{a.Part("acme")}
		return []headgate.Part{own, b.Part("ann")}, nil
	}, nil)
	require.NoError(t, err)
	for _, want := range [][]string{nil, nil, {"credits"}} {
		_, err := s.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, func(context.Context, any) (any, error) { return nil, nil })
		require.Equal(t, want, refusedBy(t, err))
	}
}
