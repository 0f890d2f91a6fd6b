package httplimit

import (
	"net/http"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestUnitOfTheSetUp: with Cost or Settle the unit of a policy is that of all requests,
// whatever each of them costs.
func TestUnitOfTheSetUp(t *testing.T) {
	l := limiter(t, memory.New(nil), minute("calls", 900), minute("p", 500))
	var cost, used []int64
	costs := func(*http.Request) []int64 { return cost }
	settle := func(*Outcome) []int64 { return used }
	named := map[string]string{"p": "tokens"}
	const requests, units, tokens = `"calls";q=900;w=60, "p";q=500;w=60`, `"calls";q=900;w=60;qu="units", "p";q=500;w=60;qu="units"`,
		`"calls";q=900;w=60, "p";q=500;w=60;qu="tokens"`
	for i, c := range []struct {
		opts Options
		want string
	}{
		{Options{}, requests}, {Options{Cost: costs}, units}, {Options{Settle: settle}, units}, {Options{Cost: costs, Settle: settle}, units},
		{Options{Units: named}, tokens}, {Options{Cost: costs, Units: named}, tokens}, {Options{Settle: settle, Units: named}, tokens},
		{Options{Cost: costs, Units: map[string]string{"p": "requests"}}, `"calls";q=900;w=60, "p";q=500;w=60;qu="requests"`},
	} {
		c.opts.XRateLimit = true
		h := wrap(t, l, RemoteAddr(), &c.opts)
		for _, n := range [][]int64{nil, {1, 1}, {1, 5}, {0, 1}, {3, 0}} {
			cost, used = n, n
			w := get(h)
			require.Equal(t, c.want, w.Header().Get("RateLimit-Policy"), "%d %v", i, n)
			want := "500"
			if c.want == tokens {
				want = "900"
			}
			require.Equal(t, want, w.Header().Get("X-RateLimit-Limit"), "%d %v", i, n)
		}
	}
	limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) { return []headgate.Part{l.Part("k", used...)}, nil }, &Options{Settle: settle})
	require.NoError(t, err)
	for _, n := range [][]int64{nil, {1, 1}, {1, 5}} {
		used = n
		require.Equal(t, units, get(limit(fine)).Header().Get("RateLimit-Policy"))
	}
}
