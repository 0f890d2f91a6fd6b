package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func ExampleNew() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name:      "client",
		Algorithm: algo.TokenBucket(algo.PerSecond(5), 10),
		OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := grpclimit.New(limiter, grpclimit.PeerAddress(), nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	)
	defer server.Stop()
	fmt.Println(len(server.GetServiceInfo()))
	// Output: 0
}

// Health checks are not counted.
func ExampleOptions() {
	opts := &grpclimit.Options{Skip: func(_ context.Context, rpc grpclimit.RPC) bool {
		return strings.HasPrefix(rpc.FullMethod, "/grpc.health.v1.Health/")
	}}
	fmt.Println(opts.Skip(context.Background(), grpclimit.RPC{FullMethod: "/grpc.health.v1.Health/Check"}))
	// Output: true
}

func ExampleNewClient() {
	wait, err := grpclimit.NewClient(nil, grpclimit.Key{}, nil) // counts nothing: obeys RetryInfo
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("localhost:50051",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(wait.Unary),
		grpc.WithChainStreamInterceptor(wait.Stream),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: localhost:50051
}

// A key of two parts, from a function: the tenant that an earlier interceptor
// put into the context, and the method.
func ExampleKey() {
	type tenant struct{}
	key := grpclimit.Func(func(ctx context.Context, rpc grpclimit.RPC) (headgate.Call, error) {
		id, ok := ctx.Value(tenant{}).(string)
		if !ok {
			return headgate.Call{}, status.Error(codes.Unauthenticated, "no tenant")
		}
		return headgate.Call{Key: headgate.Key(id, rpc.FullMethod)}, nil
	})
	text, err := key.Of(context.WithValue(context.Background(), tenant{}, "acme"), grpclimit.RPC{FullMethod: "/s/m"})
	fmt.Println(text, err)
	// Output: acme:/s/m <nil>
}

// What a call has used is known when it ends: until then it is charged an estimate.
func ExampleReport() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "running", Algorithm: algo.InFlight(20), OnFailure: headgate.FailOpen},
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	tenant := grpclimit.Func(func(context.Context, grpclimit.RPC) (headgate.Call, error) {
		return headgate.Call{Key: "tenant:acme", Costs: []int64{1, 2000}}, nil
	})
	limit, err := grpclimit.New(limiter, tenant, &grpclimit.Options{Settle: grpclimit.Reported})
	if err != nil {
		log.Fatal(err)
	}
	complete := func(ctx context.Context, _ any) (any, error) {
		grpclimit.Report(ctx, 1, 350)
		return "done", nil
	}

	info := &grpc.UnaryServerInfo{FullMethod: "/llm.Models/Complete"} // grpc.Server does this
	fmt.Println(limit.Unary(context.Background(), "prompt", info, complete))
	d, err := limiter.Peek(context.Background(), headgate.Call{Key: "tenant:acme", Costs: []int64{0, 4700}})
	fmt.Println(d.Policy, d.Used, err)
	// Output:
	// done <nil>
	// tokens 350 <nil>
}
