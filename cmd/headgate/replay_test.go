package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
	"github.com/stretchr/testify/require"
)

// combined is a line of a log.
const combined = `192.0.2.7 - - [01/Mar/2026:12:00:05 +0000] "GET /a HTTP/1.1" 200 17 "-" "-"` + "\n"

// logged writes a policy file and a log.
func logged(t *testing.T, policies, log string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	limits, file := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "access.log")
	require.NoError(t, os.WriteFile(limits, []byte(policies), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(log), 0o600))
	return []string{"replay", "-policies", limits, "-log", file}
}

const perMinute = "policies: {api: {algorithm: fixed-window, limit: 3, period: 1m}}"

// TestReplay: what is printed of a small log, and that it asks no server.
func TestReplay(t *testing.T) {
	t.Setenv("HEADGATE_REDIS", "not a server:x:y")
	log := strings.Repeat(combined, 5) + "wrong \x1b[2J\n" + strings.Replace(combined, "192.0.2.7", "2001:db8::1", 1)
	args := logged(t, perMinute, log)
	out, errs := output(t, 0, args...)
	require.Contains(t, errs, "read as Combined, by its first lines")
	for _, line := range []string{
		`access.log: Combined, 7 lines, 6 calls\n  1 lines could not be read:\n  line 6: no \[time\] "request": "wrong \\x1b\[2J"\n`,
		`6 calls of 2 keys \(remote\), 2026-03-01T12:00:05Z to 2026-03-01T12:00:05Z`,
		`the clock of the log has steps of 1s: calls of one step are spread evenly over it, in their order`,
		`limits.yaml would deny 2 calls \(33.3 %\), 1 keys \(50 %\); each policy by itself, as a shadow`,
		`api +FixedWindow\(3 per 1m0s\) +6 +2 +33.3 % +2 +1 +50 % +2026-03-01 12:00Z \(2\)`,
		`api: the 1 other keys used at most, in % of the limit: p50 33.3, p90 33.3, p99 33.3, max 33.3`,
		`192.0.2.7 +2 +of 5 +40 %`,
		`a client that is denied behaves otherwise`,
	} {
		require.Regexp(t, line, out)
	}
	out, _ = output(t, 0, append(args, "-hash", "-enforce", "-format", "combined")...)
	require.NotContains(t, out, "192.0.2.7")
	require.NotContains(t, out, "wrong")
	require.Contains(t, out, "all policies together, as in force")
	r := decode[replay.Report](t, 0, args...)
	require.EqualValues(t, 2, r.New.Policies[0].Denied)
	require.EqualValues(t, 1, r.Sources[0].Unreadable)

	require.Contains(t, exec(t, 1, logged(t, perMinute, "")...), "the log is empty")
	require.Contains(t, exec(t, 2, logged(t, perMinute, "what\nis\nthis\n")...), "no format fits one of its first 3 lines")
	require.Contains(t, exec(t, 2, "replay", "-log", "x"), "want -policies")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(ctx, args, &stdout, &stderr))
	require.Contains(t, stderr.String(), "interrupted")
}

// TestReplayOfStdin: without -log the log is the standard input. A pipe may close in a line.
func TestReplayOfStdin(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdin := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = stdin }()
	go func() {
		fmt.Fprint(w, strings.Repeat(combined, 4)+combined[:40])
		w.Close()
	}()
	args := logged(t, perMinute, "")
	out, _ := output(t, 0, args[:3]...)
	require.Contains(t, out, "standard input: Combined, 5 lines, 4 calls")
	require.Contains(t, out, "would deny 1 calls (25 %)")
	require.Contains(t, out, "1 lines could not be read")
}

// TestReplayToClosedPipe: a reader of the report that has gone is an error.
func TestReplayToClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, r.Close())
	args := logged(t, perMinute, strings.Repeat(combined, 5))
	for _, line := range [][]string{args, append(args, "-json"), {"advise", args[4]}, {"advise", "-json", args[4]}} {
		var errs bytes.Buffer
		require.Equal(t, 1, run(t.Context(), line, w, &errs))
		require.Contains(t, errs.String(), "broken pipe")
	}
}

// TestReplayOfFields: costs by policy, plans, dimensions and another policy file, by flags.
func TestReplayOfFields(t *testing.T) {
	const policies = `
policies:
  calls: {algorithm: fixed-window, limit: 9, period: 1h}
  tokens: {algorithm: fixed-window, limit: 100, period: 1h}
  routes: {algorithm: fixed-window, limit: 2, period: 1h, per: route}
plans: {free: [calls, tokens, routes], paid: {calls: {limit: 1}}}
default: free
`
	log := "time,who,plan,used,path\n"
	for i := range 4 {
		log += fmt.Sprintf("%d,a,free,%d,/x\n", 1700000000+i, 40)
		log += fmt.Sprintf("%d,b,paid,%d,/x\n", 1700000000+i, 40)
	}
	args := append(logged(t, policies, log), "-key", "who", "-plan", "{plan}", "-cost", "tokens=used,calls=2", "-per", "route=path")
	denied := map[string]int64{}
	r := decode[replay.Report](t, 0, args...)
	for _, p := range r.New.Policies {
		denied[p.Plan+"/"+p.Policy] = p.Denied
	}
	require.Equal(t, map[string]int64{"free/calls": 0, "free/tokens": 2, "free/routes": 2, "paid/calls": 4}, denied)
	old := logged(t, strings.ReplaceAll(policies, "limit: 1}", "limit: 4}"), "")[2]
	out, _ := output(t, 0, append(args, "-against", old)...)
	require.Regexp(t, `: 2 calls more are denied, 0 no longer; 0 keys are denied that were not, 0 no longer\n +MOST DENIED +DENIED\n +b +2\n`, out)
	out, _ = output(t, 0, args[:len(args)-2]...)
	require.Contains(t, out, "policies with per: route are left out; -per route=FIELD has their values")
}

// TestReplayListsMoreKeys: below the ten keys that were denied most is the number of others, and -n
// lists more, also as JSON.
func TestReplayListsMoreKeys(t *testing.T) {
	log := ""
	for i := range 14 {
		log += strings.Repeat(strings.Replace(combined, "192.0.2.7", fmt.Sprint("192.0.2.", i), 1), 4+i)
	}
	args := logged(t, perMinute, log)
	old := logged(t, strings.ReplaceAll(perMinute, "limit: 3", "limit: 99"), "")[2]
	args = append(args, "-against", old)
	out, _ := output(t, 0, args...)
	require.Equal(t, 2, strings.Count(out, "\n  and 4 more: -n lists more than 10\n"), out)
	require.NotContains(t, out, "192.0.2.3 ")
	out, _ = output(t, 0, append(args, "-n", "14")...)
	require.NotContains(t, out, "more: -n")
	require.Contains(t, out, "192.0.2.0 ")
	r := decode[replay.Report](t, 0, append(args, "-n", "12")...)
	require.Len(t, r.New.Policies[0].Most, 12)
	require.Len(t, r.Changes.Most, 12)
	require.EqualValues(t, 14, r.Changes.MoreKeys)
}

// TestReplayOfHostileKeys: no key, line or name reaches the terminal as a control character.
func TestReplayOfHostileKeys(t *testing.T) {
	const evil = "\x1b[2J\r\x00\x07\x7f\u009b31m\u202e\xff\x9b\U000e0001"
	log := ""
	for _, key := range []string{evil, strings.Repeat("x", 4096), strings.Repeat("\x1b", 4096), "<script>alert(1)</script>", evil + "2"} {
		text, err := json.Marshal(key)
		require.NoError(t, err)
		if key == evil { // bytes that are no UTF-8 stay as they are
			text = []byte("\"\\u001b[2J\xff\x9b\u009b\u202e\"")
		}
		log += strings.Repeat("{\"ts\":1700000000,\"user\":"+string(text)+"}\n", 5)
	}
	log += "{\"ts\":" + evil + "\n" + evil + "\n"
	args := append(logged(t, perMinute, log), "-key", "user")
	for _, more := range [][]string{nil, {"-json"}, {"-key", evil}, {"-key", "{user}" + evil + "{user}"}, {"-at", evil}, {"-per", evil}, {"-cost", evil}, {"-zone", evil}, {"-log", evil}, {"-format", evil}} {
		var out, errs bytes.Buffer
		status := run(t.Context(), append(append([]string{}, args...), more...), &out, &errs)
		printed(t, out.String()+errs.String())
		if more == nil {
			require.Zero(t, status)
			require.Contains(t, out.String(), "(4096 bytes)")
			require.Equal(t, 5, strings.Count(out.String(), "of 5  "), out.String())
			require.Less(t, out.Len(), 8000)
		}
		if len(more) == 1 {
			var r replay.Report
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.Len(t, r.New.Policies[0].Most, 5)
			keys := map[string]bool{}
			for _, m := range r.New.Policies[0].Most {
				keys[m.Key] = true
			}
			require.Len(t, keys, 5)
			require.EqualValues(t, 2, r.Sources[0].Unreadable)
		}
	}
}
