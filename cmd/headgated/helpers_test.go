package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// testServer is a server in this process, on ports that the system gives.
type testServer struct {
	*server
	file string // of the limits
	stop func() // ends the server and waits for it
}

// startServer runs a server with these limits. args are further flags. The budget is one that
// a busy machine keeps.
func startServer(t testing.TB, limits string, args ...string) *testServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, []byte(limits), 0o600))
	args = append([]string{"headgated", "-config", file, "-config-interval", "5ms", "-budget", "1s",
		"-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0"}, args...)
	s, _, err := settingsOf(args, nil, io.Discard)
	require.NoError(t, err)
	v, err := newServer(s, slog.New(slog.NewTextHandler(logWriter{t}, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx) }()
	ts := &testServer{server: v, file: file, stop: sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("the server does not end")
		}
	})}
	t.Cleanup(ts.stop)
	return ts
}

func (s *testServer) grpcAddr() string { return s.listeners["grpc"].Addr().String() }
func (s *testServer) httpURL() string  { return "http://" + s.listeners["http"].Addr().String() }

// client returns a client of the server's rate limit service.
func (s *testServer) client(t testing.TB) rlspb.RateLimitServiceClient {
	t.Helper()
	return rlspb.NewRateLimitServiceClient(dial(t, s.grpcAddr()))
}

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// logWriter writes to the log of a test while it runs.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(b []byte) (int, error) {
	defer func() { _ = recover() }() // after the test's end
	w.t.Logf("%s", b)
	return len(b), nil
}

const userLimits = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]"

func userRequest(value string) *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: value}}}}}
}

func read(t testing.TB, resp *http.Response, err error) (int, string) {
	t.Helper()
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func replaceFile(t testing.TB, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func scrape(t testing.TB, s *testServer) string {
	t.Helper()
	resp, err := http.Get("http://" + s.listeners["metrics"].Addr().String() + "/metrics")
	_, body := read(t, resp, err)
	return body
}
