package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

func get(h http.Handler, path, forwarded string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-Forwarded-For", forwarded)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestLimitsEachClient(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	store := memory.New(&memory.Options{Now: func() time.Time { return now }})
	h, err := newHandler(store, headgate.FailClosed, clientKey("192.0.2.0/24")) // httptest's client is 192.0.2.1
	require.NoError(t, err)
	for range 10 {
		require.Equal(t, http.StatusOK, get(h, "/", "198.51.100.1").Code)
	}
	w := get(h, "/", "198.51.100.1")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, get(h, "/", "6.6.6.6, 198.51.100.1").Code, "spoofed")
	require.Equal(t, http.StatusOK, get(h, "/", "198.51.100.2").Code, "another client")
	require.Equal(t, http.StatusOK, get(h, "/health", "198.51.100.1").Code)
	now = now.Add(time.Second)
	require.Equal(t, http.StatusOK, get(h, "/", "198.51.100.1").Code)
}

// TestWithoutRedis: nobody listens on port 1.
func TestWithoutRedis(t *testing.T) {
	for mode, want := range map[string]int{"open": 200, "closed": 503, "local": 200} {
		store, err := open("redis://127.0.0.1:1")
		require.NoError(t, err)
		h, err := newHandler(store, modes[mode], httplimit.RemoteAddr())
		require.NoError(t, err)
		require.Equal(t, want, get(h, "/", "").Code, mode)
		require.NoError(t, store.Close())
	}
	_, err := newHandler(memory.New(nil), modes["typo"], httplimit.RemoteAddr())
	require.Error(t, err)
}
