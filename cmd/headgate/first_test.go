package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// TestFirst: of a file with first, peek answers by the first policy that has room, or by the one
// that passes soonest. It shows all policies, and reset resets each. replay refuses the file.
func TestFirst(t *testing.T) {
	server, path := redistest.Start(t), filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`policies:
  requests: {algorithm: sliding-log, limit: 9, period: 1m}
  allowance: {algorithm: sliding-log, limit: 2, period: 1h}
  credits: {algorithm: sliding-log, limit: 3, period: 1m}
first: [allowance, credits]
`), 0o600))
	f, err := policyfile.Load(path, &policyfile.Options{OnFailure: headgate.FailClosed, First: true})
	require.NoError(t, err)
	limiters, err := f.Limiters(open(t, []string{"-redis", server.Addr()}).store, nil)
	require.NoError(t, err)
	run := func(args ...string) string {
		out, _ := output(t, 0, append([]string{"-redis", server.Addr(), "-policies", path}, args...)...)
		return out
	}
	for i, want := range []string{
		"would pass, charged to allowance, of first allowance, credits", "charged to allowance", "charged to credits", "charged to credits", "charged to credits",
		"would be denied by credits",
	} {
		require.Contains(t, run("peek", "ann"), want, "after %d calls", i)
		parts, err := limiters.FirstFor("", "ann", policyfile.Use{})
		require.NoError(t, err)
		d, err := headgate.First(t.Context(), parts...)
		require.NoError(t, err)
		require.Equal(t, i < 5, d.Allowed)
	}
	require.Contains(t, run("peek", "-json", "ann"), `"binding":"credits","first":["allowance","credits"]`)
	out := run("reset", "ann")
	for _, policy := range []string{"requests: 5 ", "allowance: 2 ", "credits: 3 "} {
		require.Contains(t, out, policy+"units had been used")
	}
	require.Contains(t, run("peek", "ann"), "charged to allowance")
	_, errs := output(t, 2, "replay", "-policies", path, os.DevNull)
	require.Contains(t, errs, "first")
}
