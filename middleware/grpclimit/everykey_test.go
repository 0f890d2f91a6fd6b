package grpclimit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestEveryKey: whatever a call determines is OK or INVALID_ARGUMENT, and never INTERNAL:
// each kind of key, empty, too long and of odd bytes.
func TestEveryKey(t *testing.T) {
	long, odd := strings.Repeat("x", 1<<16), "\x00\xff\"{}|:\r\n"
	metadataKey := grpclimit.Metadata("x-key")
	for name, key := range map[string]grpclimit.Key{
		"FullMethod": grpclimit.FullMethod(), "PeerAddress": grpclimit.PeerAddress(), "Metadata": metadataKey, "Authorization": grpclimit.Authorization(),
		"a function": grpclimit.Func(func(ctx context.Context, rpc grpclimit.RPC) (headgate.Call, error) {
			values := metadata.ValueFromIncomingContext(ctx, "x-key")
			return headgate.Call{Key: strings.Join(values, ",")}, nil
		}),
	} {
		s := server(t, limiter(t, nil, policy(algo.FixedWindow(algo.PerDay(1000)))), key, nil)
		for _, value := range []string{"", "fine", long, odd, "a, b", "Bearer " + long, "bearer  x"} {
			for _, method := range []string{"/s/m", "", long, odd} {
				for _, p := range []*peer.Peer{nil, {}, {Addr: named("")}, {Addr: named(odd)}, {Addr: named("[::ffff:192.0.2.1]:80")}, {Addr: named("[fe80::1%" + long + "]:80")}} {
					ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-key", value, "authorization", value))
					if p != nil {
						ctx = peer.NewContext(ctx, p)
					}
					got := callOnce(ctx, s, method)
					require.Contains(t, []codes.Code{codes.OK, codes.InvalidArgument}, got, "%s %.9q %.9q %v", name, value, method, p)
				}
			}
		}
	}
}

// callOnce returns the code of a unary call.
func callOnce(ctx context.Context, s *grpclimit.Server, method string) codes.Code {
	_, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return status.Code(err)
}

// TestEveryCost: 0 passes, a negative cost is INVALID_ARGUMENT, and one that can never pass
// is no error of the server.
func TestEveryCost(t *testing.T) {
	for _, c := range []struct {
		costs []int64
		want  codes.Code
	}{
		{[]int64{0}, codes.OK}, {[]int64{1}, codes.OK}, {[]int64{-1}, codes.InvalidArgument}, {[]int64{-1 << 63}, codes.InvalidArgument},
		{[]int64{11}, codes.InvalidArgument}, {[]int64{1 << 62}, codes.InvalidArgument},
	} {
		key := grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) {
			return headgate.Call{Key: "k", Costs: c.costs}, nil
		})
		s := server(t, limiter(t, nil, policy(algo.FixedWindow(algo.PerDay(10)))), key, nil)
		require.Equal(t, c.want, callOnce(context.Background(), s, "/s/m"), "%v", c.costs)
	}
}
