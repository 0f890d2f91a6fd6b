package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

var ports = []string{"grpc", "http", "metrics", "resp"}

// others checks that other clients are served on each port.
func others(t testing.TB, s *testServer) {
	t.Helper()
	_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest(fmt.Sprint(rand.Uint64())))
	require.NoError(t, err)
	resp, err := http.Get(s.httpURL() + "/healthcheck")
	code, _ := read(t, resp, err)
	require.Equal(t, 200, code)
	c, err := net.Dial("tcp", s.listeners["resp"].Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	b := make([]byte, 7)
	_, err = c.Read(b)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(b))
}

func TestLargeRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0")
	c := s.client(t)
	large := userRequest(strings.Repeat("x", 10<<20))
	_, err := c.ShouldRateLimit(context.Background(), large, grpc.MaxCallSendMsgSize(20<<20))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	many := userRequest("x")
	for i := range 10_000 {
		many.Descriptors = append(many.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(i)}}})
	}
	_, err = c.ShouldRateLimit(context.Background(), many)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	long := userRequest(strings.Repeat("x", 500_000)) // a key of any length is a count
	resp, err := c.ShouldRateLimit(context.Background(), long)
	require.NoError(t, err)
	require.EqualValues(t, 1, resp.Statuses[0].LimitRemaining)
	others(t, s)
}

// Random bytes on each port, and clients that send a byte and then nothing.
func TestRandomBytes(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0")
	r := rand.New(rand.NewPCG(5, 6))
	for i := range redistest.Steps(100, 2000) {
		port := ports[i%len(ports)]
		c, err := net.Dial("tcp", s.listeners[port].Addr().String())
		require.NoError(t, err)
		b := make([]byte, 1+r.IntN(3000))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		if i%8 < 4 { // what looks like the beginning of the protocol
			b = append([]byte(map[string]string{"grpc": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http": "POST /json HTTP/1.1\r\n", "metrics": "GET /metrics HTTP/1.1\r\n", "resp": "*3\r\n$11\r\n"}[port]), b...)
		}
		if i%8 == 0 {
			b = b[:1]
		}
		_, _ = c.Write(b)
		if i%8 == 0 {
			defer c.Close() // a slow client: it stays
		} else {
			_ = c.Close()
		}
	}
	others(t, s)
}

func TestIdleConnections(t *testing.T) {
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-max-connections", "2000")
	before := heap()
	n := redistest.Steps(300, 5000)
	for i := range n {
		c, err := net.Dial("tcp", s.listeners[ports[i%len(ports)]].Addr().String())
		require.NoError(t, err)
		defer c.Close()
		if ports[i%len(ports)] == "grpc" {
			_, err = c.Write([]byte(silentHTTP2))
			require.NoError(t, err)
		}
	}
	others(t, s)
	perConnection := (heap() - before) / int64(n)
	t.Logf("%d bytes per idle connection", perConnection)
	require.Less(t, perConnection, int64(128<<10))
}

// TestUnreadRequest: a request of gRPC that does not arrive ends. A health check that watches
// goes on.
func TestUnreadRequest(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	c := dial(t, s.grpcAddr())
	watch, err := healthpb.NewHealthClient(c).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	asked := time.Now()
	patient, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	never, err := c.NewStream(patient, &grpc.StreamDesc{ClientStreams: true}, rlspb.RateLimitService_ShouldRateLimit_FullMethodName)
	require.NoError(t, err)
	require.Equal(t, codes.DeadlineExceeded, status.Code(never.RecvMsg(&rlspb.RateLimitResponse{})))
	require.WithinRange(t, time.Now(), asked.Add(readWithin), asked.Add(readWithin+20*time.Second))
	s.readiness.drain()
	_, err = watch.Recv()
	require.NoError(t, err, "it is told that the server is not serving any more")
}

// TestHeaderIsARequest: a connection whose request has begun to arrive is closed for no new one.
func TestHeaderIsARequest(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-max-connections", "4")
	c := dial(t, s.grpcAddr())
	begun, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, rlspb.RateLimitService_ShouldRateLimit_FullMethodName)
	require.NoError(t, err)
	_, err = healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err, "answered after the header was read")
	for range 8 {
		c, err := net.Dial("tcp", s.grpcAddr())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.Write([]byte(silentHTTP2))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return s.listeners["grpc"].Stats().Closed >= 4 }, 20*time.Second, time.Millisecond)
	require.NoError(t, begun.SendMsg(userRequest("x")))
	require.NoError(t, begun.CloseSend())
	require.NoError(t, begun.RecvMsg(&rlspb.RateLimitResponse{}))
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// At the bound a connection that says nothing is closed for a new one, on each port. One
// whose requests come and go stays.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-max-connections", "4")
	honest := s.client(t)
	for range 3 {
		_, err := honest.ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
		for _, port := range ports {
			for range 3 {
				c, err := net.Dial("tcp", s.listeners[port].Addr().String())
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				if port == "grpc" { // keepalives are no requests
					_, err = c.Write([]byte(silentHTTP2))
					require.NoError(t, err)
				}
			}
		}
		others(t, s)
	}
	_, err := honest.ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err)
	metrics := scrape(t, s)
	for _, port := range ports {
		label := `{listener="` + port + `"} `
		require.Contains(t, metrics, "headgated_connections_bound"+label+"4")
		require.Contains(t, metrics, "headgated_connections"+label)
		require.Positive(t, s.listeners[port].Stats().Closed)
		require.NotContains(t, metrics, "headgated_connections_at_bound_total"+label+"0")
		require.NotContains(t, metrics, "headgated_connections_closed_total"+label+"0")
	}
}

// silentHTTP2 is the beginning of HTTP/2, after which nothing is asked.
const silentHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// TestFiles runs the server with fewer files than its connections may take.
func TestFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	s := &settings{config: file, grpc: "x", http: "x", metrics: "x", resp: "x", maxConnections: 10_000}
	warning, err := s.bound(20_064)
	require.NoError(t, err)
	require.Contains(t, warning, "5000 for each of 4 addresses")
	require.Equal(t, 5000, s.maxConnections)
	warning, err = s.bound(20_064)
	require.NoError(t, err)
	require.Empty(t, warning)
	s.maxConnections, s.maxConnectionsSet = 5001, true
	_, err = s.bound(20_064)
	require.ErrorContains(t, err, "raise the limit of files")
	s.maxConnections, s.cluster = 5000, "n:1"
	_, err = s.bound(20_064)
	require.Error(t, err, "the store's files")
	var out bytes.Buffer
	args := []string{"headgated", "-config", file, "-max-connections", "1000000000"}
	require.Equal(t, 2, run(context.Background(), args, nil, io.Discard, &out))
	require.Contains(t, out.String(), "-max-connections 1000000000")
	require.Equal(t, 2, run(context.Background(), args[:3], []string{"HEADGATED_MAX_CONNECTIONS=1000000000"}, io.Discard, &out))
}
