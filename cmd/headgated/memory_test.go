package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestHeldMemory: requests of 4 MiB that lack their last byte would hold more than the memory
// limit. Their connections are closed before their time ends, and the server serves on.
func TestHeldMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "100MiB")
	dir := t.TempDir()
	file, grpcAt := filepath.Join(dir, "limits.yaml"), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	cmd := loggingTo(t, log, freePort(t), "-config", file, "-budget", "30s", "-grpc", grpcAt)
	honest := rlspb.NewRateLimitServiceClient(dial(t, grpcAt))
	var hostile sync.WaitGroup
	for range 30 {
		hostile.Go(func() { hold(grpcAt, bytes.Repeat([]byte("x"), 4<<20-1)) })
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(log.Name())
		return err == nil && bytes.Contains(text, []byte("memory is short"))
	}, 20*time.Second, 10*time.Millisecond)
	hostile.Wait()
	_, err = honest.ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}

// TestFewUnreadWhileShort: while memory is short, a connection may have few requests that have not
// arrived.
func TestFewUnreadWhileShort(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	hostile := dial(t, s.grpcAddr())
	for range mostUnread {
		_, err := hostile.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, rlspb.RateLimitService_ShouldRateLimit_FullMethodName)
		require.NoError(t, err)
	}
	ask := func(c *grpc.ClientConn) codes.Code {
		_, err := rlspb.NewRateLimitServiceClient(c).ShouldRateLimit(context.Background(), userRequest("x"))
		return status.Code(err)
	}
	require.Equal(t, codes.OK, ask(hostile))
	s.short.Store(true)
	require.Equal(t, codes.ResourceExhausted, ask(hostile))
	require.Equal(t, codes.OK, ask(dial(t, s.grpcAddr())))
}

// TestFewWatches: a connection has few health checks that watch. They end when their client likes.
func TestFewWatches(t *testing.T) {
	t.Parallel()
	health := healthpb.NewHealthClient(dial(t, startServer(t, userLimits).grpcAddr()))
	watch := func() (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = w.Recv()
		return cancel, err
	}
	end, err := watch()
	require.NoError(t, err)
	for range mostWatches - 1 {
		_, err := watch()
		require.NoError(t, err)
	}
	_, err = watch()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	end()
	require.Eventually(t, func() bool { _, err := watch(); return err == nil }, 20*time.Second, time.Millisecond)
}

// TestLongRequests: a few long requests are read at once. Short ones go on beside those that do
// not end.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0")
	const size = 2 * bounded.Small
	for port, begin := range map[string]string{
		"http": fmt.Sprintf("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size),
		"resp": fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n", size),
	} {
		var hostile []net.Conn
		for range longRequests + 2 {
			c, err := net.Dial("tcp", s.listeners[port].Addr().String())
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			_, err = io.WriteString(c, begin+strings.Repeat("x", size-1))
			require.NoError(t, err)
			hostile = append(hostile, c)
		}
		require.Eventually(t, func() bool { return len(s.slots) == longRequests }, 5*time.Second, time.Millisecond, port)
		others(t, s)
		require.NoError(t, post(http.DefaultClient, s.listeners["http"].Addr().String()))
		for _, c := range hostile {
			_ = c.Close()
		}
		require.Eventually(t, func() bool { return len(s.slots) == 0 }, 20*time.Second, time.Millisecond, port)
	}
}

// hold sends a message of gRPC without its last byte, and returns when its stream ends.
func hold(address string, message []byte) {
	begin := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)+1))
	last, _ := io.Pipe()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequest(http.MethodPost, "http://"+address+rlspb.RateLimitService_ShouldRateLimit_FullMethodName, nil)
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), bytes.NewReader(message), last), last}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if resp, err := transport.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
