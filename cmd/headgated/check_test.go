package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheck: -check reads the files of the settings as a start does, and opens neither a
// store nor an address.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	check := func(code int, environ []string, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"headgated", "-grpc", "192.0.2.1:1", "-redis", "127.0.0.1:1", "-on-failure", "closed"}, args...)
		require.Equal(t, code, run(context.Background(), args, environ, &out, &errs), errs.String())
		return out.String(), errs.String()
	}
	shop := write("all/shop.yaml", "domain: shop\ndescriptors:\n"+
		"  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3, borrow: 50ms}, descriptors: [{key: path}, {key: path, value: a, rate_limit: {unlimited: true}}]}\n")
	write("all/more.yaml", "domain: shop\ndescriptors:\n  - {key: zone, rate_limit: {unit: day, requests_per_unit: 0}}\n")
	write("all/none.yaml", "domain: empty\n")
	plans := write("plans.yaml", "policies: {api: {algorithm: fixed-window, limit: 3, period: 1m, on-failure: local}}\n")
	all := filepath.Dir(shop)

	out, errs := check(0, nil, "-check", "-config", all, "-merge-domains", "-policies", plans, "-instances", "2")
	require.Equal(t, fmt.Sprintf("policies %q, plans: 0\ndomain \"empty\", limits: 0\ndomain \"shop\", limits: 3\n", plans), out)
	require.Empty(t, errs)
	out, _ = check(0, []string{"HEADGATED_CHECK=true", "HEADGATED_CONFIG=" + shop})
	require.Equal(t, "domain \"shop\", limits: 2\n", out)
	_, errs = check(0, nil, "-check", "-config", write("warned.yaml", "domain: a\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n---\ndomain: c\n"))
	require.Contains(t, errs, "the documents after the first are not read")

	for args, want := range map[[2]string]string{
		{"-config", all}: "duplicate domain",
		{"-config", write("wrong.yaml", "domain: a\ndescriptors: [{key: b, rate_limit: {unit: eon}}]\n")}: "wrong.yaml:2",
		{"-config", dir + "/nosuch"}:               "no such file",
		{"-policies", plans}:                       "-policies: ", // local, without -instances
		{"-policies", write("bad.yaml", "x: 1\n")}: "-policies: ",
		{"-policies", write("spread.yaml", "policies: {api: {algorithm: fixed-window, limit: 30, period: 1m, on-failure: open}}\nshards: 3\n")}: "Options.Borrow",
		{"-xds", "127.0.0.1:1"}: "-check: want -config or -policies",
	} {
		out, errs := check(2, nil, "-check", args[0], args[1])
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
}
