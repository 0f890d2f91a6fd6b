package httplimit

import (
	"net/http"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
)

func shadow(name string, a algo.Algorithm) headgate.Policy {
	p := policy(name, a)
	p.Shadow = true
	return p
}

// TestShadow: a client meets nothing of a shadow policy, in no field and no body, also
// where the shadow would have denied it.
func TestShadow(t *testing.T) {
	var denied Denial
	h := wrap(t, limiter(t, newClock().store(),
		shadow("tighter", algo.FixedWindow(algo.PerMinute(1))),
		policy("api", algo.FixedWindow(algo.PerMinute(3))),
		shadow("other", algo.FixedWindow(algo.PerDay(2)))), RemoteAddr(), &Options{
		XRateLimit: true,
		OnDenied:   func(w http.ResponseWriter, _ *http.Request, d Denial) { denied = d; d.Write(w) },
	})
	for _, left := range []string{"2", "1", "0"} {
		w := get(h)
		require.Equal(t, 204, w.Code)
		require.Equal(t, []string{`"api";q=3;w=60`}, w.Header().Values("RateLimit-Policy"))
		require.Equal(t, []string{`"api";r=` + left + `;t=40`}, w.Header().Values("RateLimit"))
		require.Equal(t, left, w.Header().Get("X-RateLimit-Remaining"))
		require.Empty(t, w.Header().Get("Retry-After"))
	}
	w := get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, []string{"api"}, readProblem(t, w).Violated)
	require.Equal(t, []string{"api"}, denied.Violated)
	require.Len(t, denied.States, 3)
	require.Equal(t, "40", w.Header().Get("Retry-After"), "the shadow's day is not the client's")
}

// TestShadowIsNotNamedByACost: a cost above what any policy takes is refused without the name
// of a shadow.
func TestShadowIsNotNamedByACost(t *testing.T) {
	l := limiter(t, newClock().store(), shadow("tighter", algo.FixedWindow(algo.PerMinute(1))), policy("api", algo.FixedWindow(algo.PerMinute(3))))
	w := get(wrap(t, l, RemoteAddr(), &Options{Cost: func(*http.Request) []int64 { return []int64{1 << 60, 1} }}))
	require.Equal(t, 403, w.Code)
	require.Equal(t, "cost 1152921504606846976: want 0 to 999999999999999", readProblem(t, w).Detail)
}

// TestOnlyShadows: a list of shadow policies limits nothing and says nothing.
func TestOnlyShadows(t *testing.T) {
	h := wrap(t, limiter(t, newClock().store(), shadow("tighter", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(),
		&Options{XRateLimit: true})
	for range 3 {
		w := get(h)
		require.Equal(t, 204, w.Code)
		require.Empty(t, w.Header())
	}
}

// TestNestedShadow: a shadow of the inner middleware replaces no member of the outer one.
func TestNestedShadow(t *testing.T) {
	s := newClock().store()
	outer, err := New(limiter(t, s, policy("ip", algo.FixedWindow(algo.PerMinute(10)))), RemoteAddr(), nil)
	require.NoError(t, err)
	h := outer(wrap(t, limiter(t, s, shadow("tighter", algo.FixedWindow(algo.PerMinute(1))),
		policy("user", algo.FixedWindow(algo.PerMinute(5)))), RemoteAddr(), nil))
	w := get(h)
	require.Equal(t, []string{`"ip";q=10;w=60`, `"user";q=5;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"ip";r=9;t=40`, `"user";r=4;t=40`}, w.Header().Values("RateLimit"))
}
