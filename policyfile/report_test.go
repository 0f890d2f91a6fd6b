package policyfile

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

// TestReportOfAnotherPolicy: units of a policy that the file has, and that does not apply to
// the request, are no mistake. Those of a policy that the file lacks have a line in the log.
func TestReportOfAnotherPolicy(t *testing.T) {
	f, err := Parse("f", []byte(scopedFile), nil)
	require.NoError(t, err)
	lines := new(bytes.Buffer)
	limits, err := f.Limiters(memory.New(nil), &headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	limit, err := httplimit.NewAll(func(*http.Request) ([]headgate.Part, error) {
		return limits.PartsFor("acme", "tenant:acme", Use{Of: map[string]string{"model": "small"}})
	}, &httplimit.Options{Settle: func(o *httplimit.Outcome) []int64 {
		require.Nil(t, o.Reported)
		return o.Units("requests", 1)
	}})
	require.NoError(t, err)
	serve := func(policy string) {
		h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { httplimit.ReportPolicy(r.Context(), policy, 7) }))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, 200, w.Code)
	}
	serve("large")    // only of two other models
	serve("requests") // unlimited in this plan
	require.Empty(t, lines.String())
	serve("larg")
	serve("larg")
	require.Equal(t, 1, strings.Count(lines.String(), "larg"), lines)
}

// TestUnitsOfAnotherPlan: a unit of a policy that the file has, and that does not apply to the
// first request, is no mistake.
func TestUnitsOfAnotherPlan(t *testing.T) {
	f, err := Parse("f", []byte(scopedFile), nil)
	require.NoError(t, err)
	for name, warns := range map[string]bool{"large": false, "requests": false, "larg": true} {
		lines := new(bytes.Buffer)
		limits, err := f.Limiters(memory.New(nil), &headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
		require.NoError(t, err)
		limit, err := httplimit.NewAll(func(*http.Request) ([]headgate.Part, error) {
			return limits.PartsFor("acme", "tenant:acme", Use{Of: map[string]string{"model": "small"}})
		}, &httplimit.Options{Units: map[string]string{name: "tokens"}})
		require.NoError(t, err)
		w := httptest.NewRecorder()
		limit(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, warns, strings.Contains(lines.String(), "Units has the name"), "%s: %s", name, lines)
	}
}
