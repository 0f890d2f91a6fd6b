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
  month: {algorithm: calendar, limit: 9, period: month, zone: Europe/Berlin}
  models: {algorithm: fixed-window, limit: 10, period: 1m, per: model}
  admin: {limit: blocked, per: route, only: ["GET /admin", PUT]}
plans:
  free: {reads: {limit: 5}, models: {}, admin: {}}
  only: [month, models]
  paid: {reads: {limit: unlimited}}
  gone: {reads: {limit: blocked}}
default: free
tenants:
  acme: {plan: paid}
  umbrella: {plan: only, policies: {month: {per: region}}}
`)
	out, errs := output(t, 0, "check", path)
	require.Empty(t, errs)
	for _, line := range []string{
		`free +reads TokenBucket\(5 per 1s, burst 200\), models FixedWindow\(10 per 1m0s\) \{per: model\}, admin blocked \{per: route, only: \["GET /admin", PUT\]\}\n`,
		`only +month Calendar\(9 per month from 1, Europe/Berlin\), models`,
		`paid +no limits\n`, `gone +blocked\n`, `\(default\) +reads`, "count by model, region, route too", "is valid, and names 2 tenants",
	} {
		require.Regexp(t, line, out)
	}
	out, _ = output(t, 0, "check", "-json", path)
	require.Contains(t, out, `"tenants":["acme","umbrella"],"dimensions":["model","region","route"]`)
	require.Contains(t, out, `"policies":["month Calendar(9 per month from 1, Europe/Berlin)"],"per":[{"policy":"models","algorithm":"FixedWindow(10 per 1m0s)","dimension":"model"}]`)
	require.Contains(t, out, `{"policy":"admin","blocked":true,"dimension":"route","only":["GET /admin","PUT"]}`)

	out, errs = output(t, 1, "check", path, "-dimensions", "region, model")
	require.Empty(t, out)
	require.Contains(t, errs, `: policies.admin.per: "route" is no dimension of the service's calls; want one of ["region" "model"]`)
	_, errs = output(t, 1, "check", path, "-dimensions", "model,route")
	require.Contains(t, errs, `month.per: "region" is no dimension`, "of a tenant")
	output(t, 0, "check", path, "-dimensions", "model,route,region,more")

	write("policies: {a: {algorithm: fixed-window, limit: 1, period: 1m}, b: {algorithm: fixed-window, limit: 2, period: 1m}}\nfirst: [b, a]\n")
	out, _ = output(t, 0, "check", path)
	require.Contains(t, out, "first of b, a")

	write("domain: shop\ndescriptors: []\n")
	_, errs = output(t, 1, "check", path)
	require.Contains(t, errs, "headgated -check -config "+path)

	write("policies:\n  reads: {algorithm: token-bucket, limit: 0, period: 1s, burst: 1}\n")
	_, errs = output(t, 1, "check", path)
	require.Contains(t, errs, "limits.yaml:2:")
	_, errs = output(t, 1, "check", path+".gone")
	require.Contains(t, errs, "no such file")
	_, errs = output(t, 2, "check")
	require.Contains(t, errs, "want a FILE")
}
