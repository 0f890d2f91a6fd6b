package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const (
	throttle = "CL.THROTTLE k 1000000000 1 34000000\r\n"
	looks    = "CL.THROTTLE k 1000000000 1 34000000 0\r\n"
)

// TestReplacedThreeTimes replaces the server under load: no request of gRPC or HTTP fails. A connection of the Redis
// protocol loses at most one command, which the old process has not read: the store has counted
// each command that was answered, and no other.
func TestReplacedThreeTimes(t *testing.T) {
	t.Parallel()
	rate := time.Duration(redistest.Steps(20, 4)) * time.Millisecond
	file, redis := filepath.Join(t.TempDir(), "limits.yaml"), redistest.Start(t)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(userLimits, ": 2}", ": 1000000000}", 1)), 0o600))
	grpcAt, httpAt, respAt := freePort(t), freePort(t), freePort(t)
	next := func() func() {
		own := freePort(t)
		cmd := program(t, own, "-config", file, "-redis", redis.Addr(), "-budget", "5s", "-log-level", "error", "-drain-delay", "1s",
			"-metrics", own, "-http", httpAt, "-grpc", grpcAt, "-resp", respAt)
		return func() {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait())
		}
	}
	end := next()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	var requests counts
	// A connection that is used during the drain's delay is closed by its answer. One that was idle
	// all the time is closed by both sides: the client has to be first, since a request that
	// crosses with the server's close is lost, and a POST is not sent again.
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 200 * time.Millisecond}}
	rls := rlspb.NewRateLimitServiceClient(dial(t, grpcAt))
	for name, ask := range map[string]func() error{
		"grpc": func() error { _, err := rls.ShouldRateLimit(context.Background(), userRequest("x")); return err },
		"http": func() error { return post(web, httpAt) },
	} {
		for range 4 {
			running.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(rate) {
					requests.sent.Add(1)
					if err := ask(); err != nil && requests.failed.Add(1) == 1 {
						t.Logf("the first failure, by %s: %v", name, err)
					}
				}
			})
		}
	}
	var answered, lost, connections atomic.Int64
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				connections.Add(1)
				n, err := commands(ctx, respAt, rate)
				if answered.Add(n); err != nil {
					lost.Add(1)
				}
			}
		})
	}
	for range 3 {
		old := end
		end = next()
		time.Sleep(300 * time.Millisecond)
		old()
		time.Sleep(300 * time.Millisecond)
	}
	cancel()
	running.Wait()
	charged := 1_000_000_001 - left(t, respAt)
	t.Logf("%d requests of gRPC and HTTP, %d failed; %d commands on %d connections were answered and %d lost, %d charged",
		requests.sent.Load(), requests.failed.Load(), answered.Load(), connections.Load(), lost.Load(), charged)
	end()
	require.Zero(t, requests.failed.Load())
	require.Equal(t, answered.Load(), charged)
	require.LessOrEqual(t, lost.Load(), connections.Load())
	require.GreaterOrEqual(t, connections.Load(), int64(4*4), "each replacement closes each connection")
}

// commands sends commands on one connection until it ends, or ctx does. It returns how many
// were answered.
func commands(ctx context.Context, address string, rate time.Duration) (answered int64, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	for in := bufio.NewReader(c); ctx.Err() == nil; time.Sleep(rate) {
		if _, err := command(c, in, throttle); err != nil {
			return answered, err
		}
		answered++
	}
	return answered, nil
}

// command returns the third number of an answer: what is left.
func command(c net.Conn, in *bufio.Reader, text string) (left int64, err error) {
	if _, err := io.WriteString(c, text); err != nil {
		return 0, err
	}
	var limited, limit, retry, reset int64
	_, err = fmt.Fscanf(in, "*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", &limited, &limit, &left, &retry, &reset)
	return left, err
}

func left(t testing.TB, address string) int64 {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	n, err := command(c, bufio.NewReader(c), looks)
	require.NoError(t, err)
	return n
}
