package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

// TestNames: clients get the names that the options give policies, and none of one without.
func TestNames(t *testing.T) {
	fields := []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	renamed := func(policy string) string {
		return map[string]string{"internal-plan-7": "requests", "secret": `a"b`}[policy]
	}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "internal-plan-7", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen},
		{Name: "secret", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen},
	}, nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		names    func(string) string
		policies string
		body     string
	}{
		"own":     {nil, `"internal-plan-7";q=1;w=86400, "secret";q=1;w=86400`, `"violated-policies":["internal-plan-7","secret"]`},
		"renamed": {renamed, `"requests";q=1;w=86400`, `"violated-policies":["requests"]`},
		"none":    {httplimit.NoNames, "", `"violated-policies":[]`},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := httplimit.New(l, httplimit.Header("Tenant"), &httplimit.Options{Names: c.names, XRateLimit: true})
			require.NoError(t, err)
			handler := limit(http.NotFoundHandler())
			var w *httptest.ResponseRecorder
			for range 2 {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Tenant", name)
				w = httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, c.policies, w.Header().Get("RateLimit-Policy"))
			}
			require.Equal(t, 429, w.Code)
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			require.Contains(t, w.Body.String(), c.body)
			for _, f := range fields {
				require.Equal(t, name == "none", w.Header()[f] == nil, f)
			}
		})
	}
}
