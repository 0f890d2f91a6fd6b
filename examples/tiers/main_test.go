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

// get returns the status of one request of a tenant, and its RateLimit fields.
func get(t *testing.T, limits *policyfile.Watcher, tenant string) (int, string) {
	h, err := limited(limits)
	require.NoError(t, err)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Tenant", tenant)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	remaining, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=")
	return w.Code, w.Header().Get("RateLimit-Policy") + " " + remaining
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
		code, _ := get(t, limits, tenant)
		require.Equal(t, 200, code)
	}
	code, fields := get(t, limits, "acme")
	require.Equal(t, `"requests";q=100;w=60 "requests";r=97`, fields)
	require.Equal(t, 200, code)
	code, fields = get(t, limits, "hooli")
	require.Equal(t, 403, code, "blocked")
	require.Equal(t, " ", fields)
	code, fields = get(t, limits, "initech")
	require.Equal(t, 200, code, "unlimited")
	require.Equal(t, " ", fields)

	put(strings.Replace(string(text), "acme: paid", "acme: {policies: {requests: {limit: 3}}}", 1))
	require.NoError(t, <-changes)
	code, fields = get(t, limits, "acme")
	require.Equal(t, `"requests";q=3;w=60 "requests";r=0`, fields, "another limit, the same count")
	require.Equal(t, 429, code)

	put(strings.Replace(string(text), "acme: paid", "acme: piad", 1))
	require.ErrorContains(t, <-changes, `tenants.acme: unknown plan "piad"`)
	_, fields = get(t, limits, "acme")
	require.Equal(t, `"requests";q=3;w=60 "requests";r=0`, fields, "a mistake changes nothing")
}
