package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

func serve(t *testing.T, s backend.Store, a algo.Algorithm) *httptest.Server {
	t.Helper()
	l, err := headgate.New(s, []headgate.Policy{{Name: "client", Algorithm: a, OnFailure: headgate.FailClosed}}, nil)
	require.NoError(t, err)
	server := httptest.NewServer(limited(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, server *httptest.Server) *http.Response {
	t.Helper()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(t, resp.Body.Close())
	return resp
}

func TestLimitsAClient(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	server := serve(t, s, algo.TokenBucket(algo.PerMinute(40), 3)) // one in 1.5 s
	for range 3 {
		require.Equal(t, http.StatusOK, get(t, server).StatusCode)
	}
	denied := get(t, server)
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	require.Equal(t, "2", denied.Header.Get("Retry-After"), "1.5 s, rounded up")
	now = now.Add(2 * time.Second)
	require.Equal(t, http.StatusOK, get(t, server).StatusCode)
}

// TestFailsClosed: nobody listens on port 1.
func TestFailsClosed(t *testing.T) {
	s, err := open("127.0.0.1:1")
	require.NoError(t, err, "a service starts while Redis is down")
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	denied := get(t, serve(t, s, algo.TokenBucket(algo.PerSecond(1), 1)))
	require.Equal(t, http.StatusServiceUnavailable, denied.StatusCode)
	require.Equal(t, "1", denied.Header.Get("Retry-After"))
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Microsecond: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600"} {
		require.Equal(t, want, seconds(d))
	}
}
