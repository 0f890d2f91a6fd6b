package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A server that drains answers the requests that it has, and then ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, userLimits, "-redis", redis.Addr(), "-budget", "5s", "-drain-delay", "50ms")
	c := s.client(t)
	_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err)
	redis.Stop()
	answered := make(chan error, 1)
	go func() {
		_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
		answered <- err
	}()
	time.Sleep(100 * time.Millisecond) // it is on its way to a store that does not answer
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	require.Eventually(t, func() bool { return !s.readiness.ready.Load() }, 20*time.Second, time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	redis.Cont()
	require.NoError(t, <-answered)
	<-stopped
}

// A stream that its client keeps open does not keep the server beyond -drain-timeout.
func TestDrainBesideAStream(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-drain-timeout", "300ms")
	w, err := healthpb.NewHealthClient(dial(t, s.grpcAddr())).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = w.Recv()
	require.NoError(t, err)
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Error("the server does not end")
		s.grpc.Stop()
	}
}

// All listeners end at once, also beside an HTTP request whose body does not come.
func TestDrainBesideASlowRequest(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-drain-timeout", "2s", "-resp", "127.0.0.1:0")
	slow, err := net.Dial("tcp", s.listeners["http"].Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	_, err = slow.Write([]byte("POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")) // and no more
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond)
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", s.listeners["resp"].Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 1500*time.Millisecond, time.Millisecond)
	<-stopped
}

// TestDrainDelay: while the server drains, each answer is the last of its connection.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-drain-delay", "2s", "-resp", "127.0.0.1:0")
	c, err := net.Dial("tcp", s.listeners["resp"].Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	resp, err := http.Get(s.httpURL() + "/healthcheck")
	require.NoError(t, err)
	require.False(t, resp.Close)
	_ = resp.Body.Close()
	go s.stop()
	require.Eventually(t, func() bool { return !s.readiness.ready.Load() }, 20*time.Second, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	resp, err = http.Post(s.httpURL()+"/json", "", strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`))
	require.NoError(t, err)
	require.True(t, resp.Close)
	require.Equal(t, 200, resp.StatusCode)
	_ = resp.Body.Close()
	_, err = c.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(answer))
}
