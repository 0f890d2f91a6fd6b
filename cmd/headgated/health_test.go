package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// status returns what a path of -http answers.
func (s *testServer) status(t testing.TB, path string) int {
	t.Helper()
	resp, err := http.Get(s.httpURL() + path)
	code, _ := read(t, resp, err)
	return code
}

// serving reports what gRPC health answers under both names.
func (s *testServer) serving(t testing.TB) (all []bool) {
	t.Helper()
	c := healthpb.NewHealthClient(dial(t, s.grpcAddr()))
	for _, name := range []string{"", serviceName} {
		h, err := c.Check(context.Background(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		all = append(all, h.Status == healthpb.HealthCheckResponse_SERVING)
	}
	return all
}

// While the store is away the server is healthy and not ready: what restarts an unhealthy
// server would restart all of them. -health-store makes it unhealthy. gRPC health is /healthcheck.
func TestHealthWithoutAStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	plain := startServer(t, userLimits, "-redis", redis.Addr())
	strict := startServer(t, userLimits, "-redis", redis.Addr(), "-health-store")
	for _, s := range []*testServer{plain, strict} {
		require.Eventually(t, s.readiness.ready.Load, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, 200, s.status(t, "/healthcheck"))
	}
	redis.Kill()
	for _, s := range []*testServer{plain, strict} {
		require.Eventually(t, func() bool {
			_, _ = s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
			return s.status(t, "/ready") == 503
		}, 20*time.Second, 50*time.Millisecond)
	}
	require.Equal(t, 200, plain.status(t, "/healthcheck"))
	require.Equal(t, []bool{true, true}, plain.serving(t))
	require.Equal(t, 503, strict.status(t, "/healthcheck"))
	require.Equal(t, []bool{false, false}, strict.serving(t))
	redis.Restart(t)
	require.Eventually(t, func() bool { return strict.status(t, "/healthcheck") == 200 }, 20*time.Second, 50*time.Millisecond)
}

// Without limits the server is unhealthy, unless -force-start lets it begin so.
func TestHealthWithoutLimits(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	for _, test := range []struct {
		flags              []string
		before, empty, one int
	}{
		{nil, 503, 200, 200},
		{[]string{"-force-start"}, 200, 200, 200},
		{[]string{"-force-start", "-health-limits"}, 503, 503, 200},
	} {
		s := startServer(t, "", append([]string{"-config", "", "-xds", address}, test.flags...)...)
		c.next(t)
		require.Equal(t, test.before, s.status(t, "/healthcheck"), test.flags)
		require.Equal(t, 503, s.status(t, "/ready"))
		_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
		require.Equal(t, codes.Unavailable, status.Code(err))
		c.send <- resources(t, "1")
		c.next(t)
		require.Eventually(t, func() bool { return s.status(t, "/healthcheck") == test.empty }, 20*time.Second, 5*time.Millisecond, test.flags)
		c.send <- resources(t, "2", perHour("d", 7))
		c.next(t)
		require.Eventually(t, func() bool { return s.status(t, "/healthcheck") == test.one && s.status(t, "/ready") == 200 }, 20*time.Second, 5*time.Millisecond, test.flags)
		s.stop()
	}
}

// With -force-start a mistake in the files is no end: they are used once they are mended.
func TestForceStartBesideAMistake(t *testing.T) {
	t.Parallel()
	s := startServer(t, "domain: ", "-force-start")
	require.Equal(t, 200, s.status(t, "/healthcheck"))
	require.Equal(t, 503, s.status(t, "/ready"))
	replaceFile(t, s.file, userLimits)
	require.Eventually(t, func() bool { return s.status(t, "/ready") == 200 }, 20*time.Second, 5*time.Millisecond)
}

// A connection is closed by age, and no request on it fails.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-max-connection-age", "100ms", "-max-connection-grace", "10s")
	conn := dial(t, s.grpcAddr())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 2 {
		for state := conn.GetState(); state.String() != "READY"; state = conn.GetState() {
			conn.Connect()
			require.True(t, conn.WaitForStateChange(ctx, state))
		}
		require.True(t, conn.WaitForStateChange(ctx, conn.GetState()), "it is closed without a request")
	}
	c, begin := s.client(t), time.Now()
	for time.Since(begin) < 500*time.Millisecond {
		_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
	}
}

// While every circuit is open a server is ready if each of its limits lets requests pass.
func TestReadyByFile(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: 2, on_failure: open}}\n" +
		"- {key: none, rate_limit: {unlimited: true}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 2%s}}\n"
	for mode, want := range map[string]bool{", on_failure: local": true, ", on_failure: open": true, ", on_failure: closed": false, "": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			s := startServer(t, fmt.Sprintf(text, mode), "-redis", redis.Addr(), "-instances", "2")
			c := s.client(t)
			_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
			require.NoError(t, err)
			redis.Kill()
			require.Eventually(t, func() bool {
				_, err := c.ShouldRateLimit(context.Background(), userRequest("y"))
				require.NoError(t, err)
				return s.readiness.down()
			}, 20*time.Second, 10*time.Millisecond)
			s.readiness.update(context.Background())
			require.Equal(t, want, s.readiness.ready.Load())
		})
	}
}
