// Grpc is a gRPC server that limits each client address to 10 calls at once and
// then 5 per second. It is also a client that waits for the delay that the
// server returns.
//
//	go run .                          # the server, counting in memory
//	go run . -redis localhost:6379    # the server, counting in Redis
//	go run . -calls 20                # the client, in another terminal
//	go run . -calls 20 -impatient     # without waiting: it prints what was refused
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	addr := flag.String("addr", "localhost:50051", "where the server listens")
	redis := flag.String("redis", "", "host:port or URL of a Redis server; empty: in memory")
	calls := flag.Int("calls", 0, "be the client, and make as many calls; 0: be the server")
	impatient := flag.Bool("impatient", false, "as the client, don't wait")
	flag.Parse()
	if err := run(*addr, *redis, *calls, *impatient); err != nil {
		log.Fatal(err)
	}
}

// run is the server or the client, by the flags: one program is enough to try
// both.
func run(addr, redis string, calls int, impatient bool) error {
	if calls > 0 {
		return call(os.Stdout, addr, calls, impatient)
	}
	store, err := open(redis)
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := newServer(store)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return server.Serve(ln)
}

// open returns a store in memory or on Redis. Nothing else of the example
// depends on which.
func open(redis string) (backend.Store, error) {
	if redis == "" {
		return memory.New(nil), nil
	}
	if !strings.Contains(redis, "://") {
		redis = "redis://" + redis
	}
	return standalone.Open(redis, nil)
}

// newServer returns a server with one service, which comes with grpc-go: health.
func newServer(store backend.Store) (*grpc.Server, error) {
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "client",
		Algorithm: algo.TokenBucket(algo.PerSecond(5), 10),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := grpclimit.New(limiter, grpclimit.PeerAddress(), nil)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server, nil
}

// call makes the calls, one after the other, and prints what became of each.
func call(w io.Writer, addr string, calls int, impatient bool) error {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if !impatient {
		wait, err := grpclimit.NewClient(nil, grpclimit.Key{}, nil)
		if err != nil {
			return err
		}
		opts = append(opts, grpc.WithChainUnaryInterceptor(wait.Unary))
	}
	conn, err := grpc.NewClient(addr, opts...)
	if err != nil {
		return err
	}
	defer conn.Close()
	begin := time.Now()
	for range calls {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Fprintf(w, "%6v  %v\n", time.Since(begin).Round(time.Millisecond), outcome(err))
	}
	return nil
}

// outcome prints the status of a refusal as a client gets it, with the delay in
// its text.
func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "served"
}
