package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The server as Envoy Gateway starts it: limits by xDS over mutual TLS, TLS of gRPC, and a pod
// whose three probes are plain HTTP at /healthcheck.
func TestEnvoyGateway(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.Start(t), t.TempDir()
	args, trusting := redistest.Certificate(t) // of both sides, for loopback
	cert, key := args[1], args[3]
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	c, address := startControl(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
		ClientCAs: trusting.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert})))
	environ := strings.Split(strings.NewReplacer("envoy-gateway:18001", address, "/redis-certs/tls.crt", "", "/redis-certs/tls.key", "", "REDIS_TLS=true", "REDIS_TLS=false",
		"/certs/tls.crt", cert, "/certs/tls.key", key, "/certs/ca.crt", cert, "redis:6379", redis.Addr(), ":19001", "127.0.0.1:0", "/data", filepath.Join(dir, "none"),
	).Replace(strings.Join(envoyGateway, "\n")), "\n")
	settings, _, err := settingsOf([]string{"/bin/ratelimit"}, append(environ, "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0"), io.Discard)
	require.NoError(t, err)
	v, err := newServer(settings, slog.New(slog.NewTextHandler(logWriter{t}, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	s := &testServer{server: v}
	require.Equal(t, 200, s.status(t, "/healthcheck"), "the pod becomes ready before the first limits")
	require.Equal(t, "envoy-ratelimit", c.next(t).Node.Id)
	c.send <- resources(t, "1", perHour("gateway", 2))
	require.Equal(t, "<nil>", errorOf(c.next(t)))

	conn, err := grpc.NewClient(s.grpcAddr(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: trusting.RootCAs, Certificates: []tls.Certificate{pair}})))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	req := userRequest("x")
	req.Domain = "gateway"
	var codes []rlspb.RateLimitResponse_Code
	require.Eventually(t, func() bool { // on a busy machine a connection may take longer than the budget
		resp, err := rlspb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
		if err == nil {
			codes = append(codes, resp.OverallCode)
		}
		return len(codes) == 3
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, codes[2])
	_, port, err := net.SplitHostPort(v.listeners["metrics"].Addr().String())
	require.NoError(t, err)
	require.NotEqual(t, "9464", port)

	redis.Kill()
	req.Descriptors[0].Entries[0].Value = "y"
	require.Eventually(t, func() bool {
		_, err := rlspb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
		return err != nil && s.status(t, "/ready") == 503
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, 200, s.status(t, "/healthcheck"), "a liveness probe restarts nothing")
}
