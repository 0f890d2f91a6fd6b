package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/statuspage"
	"github.com/stretchr/testify/require"
)

// TestTopOfAPage: the most denied keys of a process, in their order, as text and as JSON; hashed if
// its page hashes them.
func TestTopOfAPage(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen}}, nil)
	require.NoError(t, err)
	page := statuspage.New(l)
	defer page.Close()
	for key, calls := range map[string]int{"user:\x1b1": 3, "user:2": 7, "user:3": 5} {
		for range calls {
			_, err := l.Allow(context.Background(), key)
			require.NoError(t, err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/limits/", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	top := func(args ...string) (status int, out, notes string) {
		var o, n bytes.Buffer
		status = run(context.Background(), append([]string{"top", "-every", "0"}, args...), &o, &n)
		return status, o.String(), n.String()
	}
	status, out, notes := top("-page", server.URL+"/limits/")
	require.Zero(t, status, notes)
	require.Regexp(t, `^\d\d:\d\d:\d\d  .*\nDENIED  KEY\n6       \(hash\) [0-9a-f]{16}\n4 `, out)
	require.NotContains(t, out, "user")
	page.Keys = true
	_, out, _ = top("-page", server.URL+"/limits", "-n", "3")
	require.Regexp(t, `(?s)6 +user:2\n4 +user:3\n2 +user:\\x1b1\n$`, out)
	_, out, _ = top("-page", server.URL+"/limits/", "-json", "-n", "1")
	var d denied
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, []statuspage.Key{{Key: "user:2", Count: 6}}, d.Denied)

	status, _, notes = top("-page", server.URL+"/elsewhere/")
	require.Equal(t, 1, status)
	require.Contains(t, notes, "404")
	for _, args := range [][]string{{"-page", "localhost:8080"}, {"-page", server.URL, "-policies", "limits.yaml"}} {
		status, _, notes = top(args...)
		require.Equal(t, 2, status)
		require.Contains(t, notes, "-page")
	}
}
