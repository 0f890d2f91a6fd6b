package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// get returns the status and the answer of one call of a tenant.
func get(limits *policyfile.Watcher, tenant string) (int, string) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Tenant", tenant)
	w := httptest.NewRecorder()
	limited(limits).ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestPlansChangeAtRunTime(t *testing.T) {
	text, err := os.ReadFile("limits.yaml")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	put := func(text string) { // renamed, as Watch advises: it never reads half a file
		require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	put(string(text))
	changes := make(chan error, 9)
	limits, err := policyfile.Watch(path, memory.New(nil), &policyfile.Options{
		Interval: time.Millisecond,
		Reloaded: func(err error) { changes <- err },
	})
	require.NoError(t, err)
	defer limits.Close()

	for _, tenant := range []string{"acme", "acme", "umbrella", "somebody"} {
		code, _ := get(limits, tenant)
		require.Equal(t, 200, code)
	}
	code, says := get(limits, "acme")
	require.Equal(t, "3 of 100 used", says)
	require.Equal(t, 200, code)

	put(strings.Replace(string(text), "acme: paid", "acme: {policies: {requests: {limit: 3}}}", 1))
	require.NoError(t, <-changes)
	code, says = get(limits, "acme")
	require.Equal(t, "3 of 3 used", says, "another limit, the same count")
	require.Equal(t, 429, code)

	put(strings.Replace(string(text), "acme: paid", "acme: piad", 1))
	require.ErrorContains(t, <-changes, `tenants.acme: unknown plan "piad"`)
	_, says = get(limits, "acme")
	require.Equal(t, "3 of 3 used", says, "a mistake changes nothing")
}
