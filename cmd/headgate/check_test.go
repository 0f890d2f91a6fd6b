package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheck: a policy file that a service can load is printed by its plans, without a server.
func TestCheck(t *testing.T) {
	t.Setenv("HEADGATE_REDIS", "127.0.0.1:1")
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(`policies:
  reads: {algorithm: token-bucket, limit: 100, period: 1s, burst: 200}
  models: {algorithm: fixed-window, limit: 10, period: 1m, per: model}
plans:
  free: {reads: {limit: 5}, models: {}}
  paid: {reads: {limit: unlimited}}
  gone: {reads: {limit: blocked}}
default: free
tenants:
  acme: {plan: paid}
`)
	out, errs := output(t, 0, "check", path)
	require.Empty(t, errs)
	for _, line := range []string{`free +reads TokenBucket\(5 per 1s\)\n`, `paid +no limits\n`, `gone +blocked\n`, `\(default\) +reads`, "count by model too", "is valid, and names 1 tenants"} {
		require.Regexp(t, line, out)
	}
	out, _ = output(t, 0, "check", "-json", path)
	require.Contains(t, out, `"tenants":["acme"],"dimensions":["model"]`)

	write("policies:\n  reads: {algorithm: token-bucket, limit: 0, period: 1s, burst: 1}\n")
	_, errs = output(t, 1, "check", path)
	require.Contains(t, errs, "limits.yaml:2:")
	_, errs = output(t, 1, "check", path+".gone")
	require.Contains(t, errs, "no such file")
	_, errs = output(t, 2, "check")
	require.Contains(t, errs, "want a FILE")
}
