package main

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// TestDimensionKeys: a reset names the counts per dimension that remain, what keys prints can
// be pasted into reset, and -of finds each value.
func TestDimensionKeys(t *testing.T) {
	server, path := redistest.Start(t), filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`policies:
  requests: {algorithm: fixed-window, limit: 10, period: 1d}
  each: {algorithm: fixed-window, limit: 10, period: 1d, per: route}
`), 0o600))
	f, err := policyfile.Load(path, &policyfile.Options{OnFailure: headgate.FailClosed})
	require.NoError(t, err)
	limiters, err := f.Limiters(open(t, []string{"-redis", server.Addr()}).store, nil)
	require.NoError(t, err)
	values := []string{"/plain", "GET /users/{id}", "/a:b%", "/it's?$HOME&`x`;#", `/back\slash!"*`, "(~)", "/ü"}
	for _, value := range values {
		parts, err := limiters.PartsFor("", "-t", policyfile.Use{Of: map[string]string{"route": value}})
		require.NoError(t, err)
		d, err := headgate.All(t.Context(), parts...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	run := func(args ...string) (stdout, stderr string) {
		return output(t, 0, append([]string{"-redis", server.Addr()}, args...)...)
	}
	out, errs := run("reset", "-policies", path, "--", "-t")
	require.Contains(t, out, "requests: 7 units had been used")
	require.Contains(t, errs, "note: counts per route remain: headgate keys -- -t:route: lists them, headgate reset -policies "+path+" -of route=VALUE -- -t resets one\n")
	require.Contains(t, errs, "is stored as a hash")

	listed, _ := run("keys", "--", "-t:route:")
	require.Equal(t, 4, strings.Count(listed, "\n"), "the others are hashes:\n%s", listed)
	for line := range strings.Lines(listed) {
		word, _, _ := strings.Cut(line, "\t")
		pasted, err := osexec.Command("bash", "-c", "printf '%s\\0' "+word).Output()
		require.NoError(t, err, word)
		args := strings.Split(string(bytes.TrimSuffix(pasted, []byte{0})), "\x00")
		out, _ := run(append([]string{"reset"}, args...)...)
		require.Contains(t, out, "was reset; counts deleted: 1", word)
	}
	for i, value := range values {
		of := []string{"-policies", path, "-of", "route=" + value, "--", "-t"}
		out, _ := run(append([]string{"peek"}, of...)...)
		hashed := strings.ContainsAny(value, " {}~ü")
		require.Equal(t, hashed, strings.Contains(out, "  1     9 "), "%d: %s%s", i, value, out)
		out, errs := run(append([]string{"reset"}, of...)...)
		require.Equal(t, hashed, strings.Contains(out, "each: 1 units had been used"), out)
		require.Empty(t, errs)
	}
	out, errs = run("keys")
	require.Empty(t, out+errs)
	out, errs = run("keys", "--", "-t:")
	require.Empty(t, out)
	require.Contains(t, errs, "note: no such key is listed")
}
