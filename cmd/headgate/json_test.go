package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// scripted has policies of each kind that the JSON distinguishes.
const scripted = `
policies:
  calls: {algorithm: fixed-window, limit: 100, period: 400d, on-failure: open}
  tight: {algorithm: fixed-window, limit: 2, period: 400d, on-failure: open, shadow: true}
  tokens: {algorithm: compact-log, limit: 9, period: 400d, on-failure: open, per: model, only: large}
  slots: {algorithm: in-flight, limit: 3, on-failure: closed}
plans:
  basic: [calls, tight, tokens]
  free: {calls: {limit: unlimited}}
  jobs: [slots]
default: basic
tenants:
  old: {policies: {calls: {limit: blocked}}}
`

// changing are the values that differ from one run to the next.
var changing = regexp.MustCompile(`"((?:retry_after|reset_after|ends|took)_us|id|time|file|nodes)":("[^"]*"|\[[^\]]*\]|-?[0-9.]+)`)

// TestGolden: the JSON of the commands, which scripts read.
func TestGolden(t *testing.T) {
	server, path := redistest.Start(t), filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(scripted), 0o600))
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	defer store.Close()
	f, err := policyfile.Load(path, nil)
	require.NoError(t, err)
	all, err := f.Limiters(store, nil)
	require.NoError(t, err)
	basic, _ := all.Plan("basic")
	take(t, basic, "user:42", 3, 1)
	jobs, _ := all.Plan("jobs")
	_, _, err = jobs.Reserve(t.Context(), headgate.Call{Key: "job"})
	require.NoError(t, err)

	var b strings.Builder
	b.WriteString("# What -json prints. Times and names of this run are left out.\n")
	for _, line := range []string{
		"peek -policies FILE user:42", "peek -policies FILE -cost 98 user:42", "peek -policies FILE -plan free user:42", "peek -policies FILE -tenant old user:42",
		"peek user:42", "leases job", "keys user:", "top -every 0 -policies FILE", "check FILE", "ping",
		"reset -policies FILE user:42", "reset job",
	} {
		args := append(strings.Fields(strings.ReplaceAll(line, "FILE", path)), "-json")
		if !strings.HasPrefix(line, "check") {
			args = append(args, "-redis", server.Addr())
		}
		out, _ := output(t, 0, args...)
		fmt.Fprintf(&b, "\n# headgate %s\n", line)
		var pretty bytes.Buffer
		require.NoError(t, json.Indent(&pretty, []byte(changing.ReplaceAllString(out, `"$1":"…"`)), "", "\t"))
		b.Write(pretty.Bytes())
	}
	golden.Equal(t, "json.golden", b.String())
}

// TestGoldenReplay: the JSON of replay and advise, of a log with what a report can have.
func TestGoldenReplay(t *testing.T) {
	const policies = `
policies:
  calls: {algorithm: sliding-window, limit: 3, period: 1m}
  tokens: {algorithm: token-bucket, limit: 1, period: 1s, burst: 9, shadow: true}
  slots: {algorithm: in-flight, limit: 3}
plans:
  free: [calls, tokens, slots]
  none: {calls: {limit: unlimited}}
  gone: {calls: {limit: blocked}}
default: free
tenants:
  own: {policies: {calls: {limit: 2}}}
`
	log := "time,who,plan,tenant,used\n"
	for i := range 12 {
		log += fmt.Sprintf("2026-03-01 12:%02d:05,%s,free,%s,%d\n", i/5, []string{"a", "b", "a", "\xff"}[i%4], []string{"own", "x"}[i%2], 1+i%5)
	}
	log += "2026-03-01 12:00:05,late,free,own,1\nnot a call\n2026-03-01 12:03:00,,free,own,1\n"
	log += "2026-03-01 12:03:00,c,none,x,1\n2026-03-01 12:03:00,d,gone,x,1\n2026-03-01 12:03:00,e,typo,x,1\n"
	args := logged(t, policies, log)
	old := logged(t, strings.ReplaceAll(policies, "limit: 3, period", "limit: 9, period"), "")[2]
	var b strings.Builder
	b.WriteString("# What -json prints of a log. Names of files are left out.\n")
	for _, line := range []string{
		"replay -policies FILE -log LOG -key who", "replay -policies FILE -log LOG -key who -plan {plan} -cost tokens=used -against OLD",
		"replay -policies FILE -log LOG -key who -tenant {tenant} -enforce", "advise -log LOG -key who -per 1m -keys 1", "advise -log LOG -key who -per 1m,1h -cost used -deny 10%",
	} {
		out, _ := output(t, 0, append(strings.Fields(strings.NewReplacer("FILE", args[2], "LOG", args[4], "OLD", old).Replace(line)), "-json")...)
		fmt.Fprintf(&b, "\n# headgate %s\n", line)
		var pretty bytes.Buffer
		require.NoError(t, json.Indent(&pretty, []byte(regexp.MustCompile(`"file":"[^"]*"`).ReplaceAllString(out, `"file":"…"`)), "", "\t"))
		lists := regexp.MustCompile(`\[[\s0-9,]+\]`) // of numbers, a line each
		b.WriteString(lists.ReplaceAllStringFunc(pretty.String(), func(list string) string { return strings.Join(strings.Fields(list), "") }))
	}
	golden.Equal(t, "replay.golden", b.String())
}
