package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestRESP(t *testing.T) {
	t.Parallel()
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(policies, []byte("policies:\n  calls: {algorithm: fixed-window, limit: 2, period: 1d}\n  more: {algorithm: fixed-window, limit: 1, period: 1d}\nplans:\n  free: [calls]\n  paid: [calls, more]\n  open: {calls: {limit: unlimited}}\n  shut: {calls: {limit: blocked}}\ndefault: free\nfirst: {paid: [calls, more]}\n"), 0o600))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies, "-on-failure", "closed")
	c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String()})
	defer c.Close()
	for i := range 3 {
		got, err := c.Do(context.Background(), "HG.TAKE", "free", "k").Slice()
		require.NoError(t, err)
		require.Equal(t, int64(max(0, 1-i)), got[3])
		cell, err := c.Do(context.Background(), "CL.THROTTLE", "k", "1", "1", "86400").Int64Slice()
		require.NoError(t, err)
		require.Equal(t, []int64{int64(i / 2), 2, int64(max(0, 1-i))}, cell[:3])
	}
	for plan, source := range map[string]string{"open": "unlimited", "shut": "blocked"} {
		got, err := c.Do(context.Background(), "HG.TAKE", plan, "k").Slice()
		require.NoError(t, err)
		require.Equal(t, source, got[6])
	}
	for _, policy := range []string{"calls", "calls", "more"} {
		got, err := c.Do(context.Background(), "HG.TAKE", "paid", "first").Slice()
		require.NoError(t, err)
		require.Equal(t, []any{int64(1), policy}, got[:2])
	}
	require.ErrorContains(t, c.Do(context.Background(), "HG.TAKE", "none", "k").Err(), `plan "none"`)
	require.Contains(t, scrape(t, s), `headgated_resp_commands_total{command="CL.THROTTLE",result="ok"} 3`)
	s.stop() // while the client's connection is open
}

// TestPoliciesOfTheDocs: the policy file of docs/server.md serves the call beside it.
func TestPoliciesOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	_, text, found := bytes.Cut(text, []byte("`HG.TAKE free user:42` takes a unit:\n\n```yaml\n"))
	require.True(t, found)
	file, _, _ := bytes.Cut(text, []byte("```"))
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(policies, file, 0o600))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies)
	c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String()})
	defer c.Close()
	got, err := c.Do(context.Background(), "HG.TAKE", "free", "user:42").Slice()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), "api", int64(3), int64(2)}, got[:4])
}

// A policy file that turns invalid is counted, and shown until it is mended.
func TestPoliciesReload(t *testing.T) {
	t.Parallel()
	const text = "policies:\n  calls: {algorithm: fixed-window, limit: %s, period: 1d, on-failure: open}\n"
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, policies, fmt.Sprintf(text, "2"))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies)
	has := func(lines ...string) func() bool {
		return func() bool {
			metrics := scrape(t, s)
			return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(metrics, line+"\n") })
		}
	}
	const ok, refused = `headgated_config_loads_total{files="policies",result="ok"} `, `headgated_config_refused{files="policies"} `
	require.True(t, has(ok+"1", refused+"0", `headgated_config_refused{files="limits"} 0`)())
	replaceFile(t, policies, fmt.Sprintf(text, "many"))
	require.Eventually(t, has(ok+"1", refused+"1", `headgated_config_loads_total{files="policies",result="error"} 1`), 20*time.Second, 5*time.Millisecond)
	replaceFile(t, policies, fmt.Sprintf(text, "3"))
	require.Eventually(t, has(ok+"2", refused+"0"), 20*time.Second, 5*time.Millisecond)
}
