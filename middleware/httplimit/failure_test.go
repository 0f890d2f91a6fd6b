package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestRedisDies: status, headers and body of each failure mode, before a server
// dies, once it is dead, and as a service meets it that starts without one.
func TestRedisDies(t *testing.T) {
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	all := func(mode headgate.FailureMode) *headgate.Limiter {
		l, err := headgate.New(store, []headgate.Policy{
			{Name: "minute", Algorithm: algo.TokenBucket(algo.PerMinute(60), 8), OnFailure: mode},
			{Name: "daily", Algorithm: algo.TokenBucket(algo.PerDay(1000), 1000), OnFailure: mode},
		}, &headgate.Options{Instances: 4})
		require.NoError(t, err)
		return l
	}
	opts := &Options{XRateLimit: true}
	open, closed, local := wrap(t, all(headgate.FailOpen), RemoteAddr(), opts),
		wrap(t, all(headgate.FailClosed), RemoteAddr(), opts), wrap(t, all(headgate.FailLocal), RemoteAddr(), opts)
	const policies = `"minute";q=8;w=8, "daily";q=1000;w=86400`
	w := get(open)
	require.Equal(t, 204, w.Code)
	require.Equal(t, `"minute";r=7;t=1, "daily";r=999;t=87`, w.Header().Get("RateLimit"))
	require.Equal(t, "7", w.Header().Get("X-RateLimit-Remaining"))

	server.Kill()
	for range 3 {
		w = get(open)
		require.Equal(t, 204, w.Code)
		require.Equal(t, policies, w.Header().Get("RateLimit-Policy"))
		require.Len(t, w.Header(), 1, "no number that nobody counted: %v", w.Header())

		w = get(closed)
		require.Equal(t, 503, w.Code)
		require.Equal(t, policies, w.Header().Get("RateLimit-Policy"))
		require.NotEqual(t, "0", w.Header().Get("Retry-After"))
		require.Len(t, w.Header(), 4, "and the type and length of the body: %v", w.Header())
		p := readProblem(t, w)
		require.Equal(t, problemTypes+"temporary-reduced-capacity", p.Type)
		require.Empty(t, p.Violated)
	}
	for _, left := range []string{"1", "0"} { // a fourth of 8, and of 1000
		w = get(local)
		require.Equal(t, 204, w.Code)
		require.Equal(t, left, w.Header().Get("X-RateLimit-Remaining"))
		require.Equal(t, "8", w.Header().Get("X-RateLimit-Limit"), "as RateLimit-Policy; the share is 2")
		require.Equal(t, policies, w.Header().Get("RateLimit-Policy"))
		require.Contains(t, w.Header().Get("RateLimit"), `"minute";r=`+left+`;t=`)
		require.Contains(t, w.Header().Get("RateLimit"), `"daily";r=24`)
	}
	w = get(local)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "4", w.Header().Get("Retry-After"), "15 a minute")
	require.Equal(t, "8", w.Header().Get("X-RateLimit-Limit"), "of the policy that denies, as above")
	require.Equal(t, []string{"minute"}, readProblem(t, w).Violated)
}

// TestClientLeavesWhileRedisHangs: neither 429 nor 503.
func TestClientLeavesWhileRedisHangs(t *testing.T) {
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	h := wrap(t, limiter(t, store, policy("p", algo.FixedWindow(algo.PerMinute(9)))), RemoteAddr(), nil)
	require.Equal(t, 204, get(h).Code)
	server.Stop()
	t.Cleanup(server.Cont)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	w := send(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	require.Equal(t, statusClientLeft, w.Code)
	require.Empty(t, w.Header())
}

// TestRedisNeverThere: nobody listens on port 1.
func TestRedisNeverThere(t *testing.T) {
	store, err := standalone.Open("redis://127.0.0.1:1", &standalone.Options{Budget: 50 * time.Millisecond})
	require.NoError(t, err, "a service starts while Redis is down")
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	h := wrap(t, limiter(t, store, policy("p", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(), nil)
	w := get(h)
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Empty(t, w.Header().Get("RateLimit"))
}
