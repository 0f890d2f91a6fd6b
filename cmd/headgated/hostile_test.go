package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
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
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-max-connections", "6000")
	before := heap()
	n := redistest.Steps(300, 5000)
	for i := range n {
		c, err := net.Dial("tcp", s.listeners[ports[i%len(ports)]].Addr().String())
		require.NoError(t, err)
		defer c.Close()
		if ports[i%len(ports)] == "grpc" {
			_, err = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			require.NoError(t, err)
		}
	}
	others(t, s)
	perConnection := (heap() - before) / int64(n)
	t.Logf("%d bytes per idle connection", perConnection)
	require.Less(t, perConnection, int64(128<<10))
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A server with few connections lets the next wait, and serves it when one leaves.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-max-connections", "2")
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", s.listeners["http"].Addr().String())
		require.NoError(t, err)
		held = append(held, c)
	}
	time.Sleep(50 * time.Millisecond) // until both are accepted
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.httpURL() + "/healthcheck")
		if err == nil {
			_ = resp.Body.Close()
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a third connection was served: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	for _, c := range held {
		_ = c.Close()
	}
	require.NoError(t, <-answered)
}
