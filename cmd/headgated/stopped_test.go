package main

import (
	"context"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestStoppedMostOfTheTime stops the server for 80 ms of each 100, as a host does with a
// container above its limit. It decides all the while, and all from a second after it. A half
// second in which a bare listener is late too is not judged.
func TestStoppedMostOfTheTime(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	file, redis, grpcAt, httpAt := filepath.Join(t.TempDir(), "limits.yaml"), redistest.Start(t), freePort(t), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(userLimits, ": 2}", ": 1000000000}", 1)), 0o600))
	cmd := program(t, httpAt, "-config", file, "-redis", redis.Addr(), "-log-level", "error", "-grpc", grpcAt)
	stopped := redistest.Steps(4, 10) // half seconds
	decided, lost, begin := make([]atomic.Int64, stopped+6), make([]atomic.Int64, stopped+6), time.Now()
	now := func() int { return int(time.Since(begin) / (time.Second / 2)) }
	rls := rlspb.NewRateLimitServiceClient(dial(t, grpcAt))
	var running sync.WaitGroup
	for range 64 {
		running.Go(func() {
			for at := now(); at < len(decided); at = now() {
				if _, err := rls.ShouldRateLimit(context.Background(), userRequest("x")); err == nil {
					decided[at].Add(1)
				} else {
					lost[at].Add(1)
				}
			}
		})
	}
	for now() < stopped {
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(80 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(context.Background())
	machine, late := newBare(ctx, t, &running), make([]time.Duration, len(decided)) // of the host
	for at := stopped; at < len(decided); at++ {
		from := begin.Add(time.Duration(at) * time.Second / 2)
		time.Sleep(time.Until(from.Add(time.Second / 2)))
		late[at] = machine.slowest(from)
	}
	cancel()
	running.Wait()
	meanwhile := int64(0)
	for at := range decided {
		t.Logf("half second %d: %d decided, %d not; a bare listener took %v", at, decided[at].Load(), lost[at].Load(), late[at])
		if at < stopped {
			meanwhile += decided[at].Load()
			require.True(t, decided[at].Load() > 0 || !redistest.Long()) // else other tests have the processors too
		} else if at >= stopped+2 && late[at] <= busy {
			require.LessOrEqual(t, 1000*lost[at].Load(), decided[at].Load()+lost[at].Load())
		}
	}
	require.NotZero(t, meanwhile)
}

// TestLogWithoutReader: the end of the program that reads the log is not that of the server, which
// strangers could bring about by a request that is a line of the log.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	file, grpcAt := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	reader, log, err := os.Pipe()
	require.NoError(t, err)
	cmd := loggingTo(t, log, freePort(t), "-config", file, "-grpc", grpcAt)
	require.NoError(t, log.Close())
	require.NoError(t, reader.Close())
	rls := rlspb.NewRateLimitServiceClient(dial(t, grpcAt))
	for range 2 {
		_, err = rls.ShouldRateLimit(context.Background(), &rlspb.RateLimitRequest{})
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "it has not ended by itself")
}
