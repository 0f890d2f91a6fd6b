package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// TestByHand runs the redis-cli lines of docs/operations.md on a server that
// has the keys they name, in their order: the last of them is a reset.
func TestByHand(t *testing.T) {
	cli, err := osexec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli")
	}
	server := redistest.Start(t)
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, shards := range []int{0, 16} {
		api := headgate.Policy{OnFailure: headgate.FailClosed}
		log, minute := api, api
		log.Name, log.Algorithm = "api", algo.SlidingLog(algo.PerHour(160))
		minute.Name, minute.Algorithm = "api-minute", algo.FixedWindow(algo.PerMinute(160))
		l, err := headgate.New(s, []headgate.Policy{log, minute}, &headgate.Options{Shards: shards})
		require.NoError(t, err)
		take(t, l, "user:42", 2, 1)
		take(t, l, "a b", 1, 1)
	}

	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^(?:redis-cli|printf) .*?(?:   +#.*)?$`).FindAllString(string(text), -1)
	require.Greater(t, len(lines), 12)
	answers := map[string]string{}
	for _, line := range lines {
		command := regexp.MustCompile(` *#.*`).ReplaceAllString(line, "")
		run := fmt.Sprintf("redis-cli() { %s -p %s \"$@\"; }\n%s", cli, port, command)
		out, err := osexec.Command("bash", "-c", run).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
		require.NotRegexp(t, `(?i)\(?error\)?\b|^ERR`, string(out), command)
		answers[command] = string(out)
	}
	require.Equal(t, "headgate:{user:42}\n", sorted(answers[`redis-cli --scan --pattern 'headgate:{user:42}*'`])[:19])
	require.Contains(t, answers[`redis-cli --scan --pattern 'headgate:{~user:42~*'`], "headgate:{~user:42~16")
	require.Equal(t, "f1m/api-minute\n", answers[`redis-cli hkeys 'headgate:{user:42}'`])
	require.Equal(t, "2\n", answers[`redis-cli zcard 'headgate:{user:42}:log:1h/api'`])
	require.Equal(t, "2\n", answers[`redis-cli unlink 'headgate:{user:42}' 'headgate:{user:42}:log:1h/api'`])
	tag := answers[`printf %s 'a b' | sha256sum | cut -c1-32`]
	require.Len(t, tag, 33)
	found, err := server.Client(t).Exists(t.Context(), "headgate:{~"+tag[:32]+"}").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, found)
	require.Contains(t, string(text), tag[:32])
}

// TestCutOver holds the two ways of docs/operations.md: what another limiter
// has admitted counts from the first call that Headgate decides.
func TestCutOver(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	policy := func(limit int64) headgate.Policy {
		return headgate.Policy{Name: "api", Algorithm: algo.SlidingLog(algo.PerHour(limit)), OnFailure: headgate.FailOpen}
	}
	limiter, err := headgate.New(s, []headgate.Policy{policy(100)}, nil)
	require.NoError(t, err)
	raised, err := limiter.With(policy(100_000))
	require.NoError(t, err)

	for range 120 { // the old limiter admits a few too many, in 80 minutes
		take(t, raised, "counted", 1, 1)
		now = now.Add(40 * time.Second)
	}
	take(t, raised, "charged once", 1, 120)
	for _, key := range []string{"counted", "charged once"} {
		d, err := limiter.Allow(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, key == "counted", d.Allowed, "%s: %d used", key, d.Used)
		require.EqualValues(t, map[string]int{"counted": 90, "charged once": 120}[key], d.Used, "of this hour")
	}
}

// TestCutOverInSteps: while processes of both steps run, and after a way back, no more than
// the limit passes if Headgate's processes charge the old limiter too.
func TestCutOverInSteps(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	policy := func(name string, burst int64) headgate.Policy {
		return headgate.Policy{Name: name, Algorithm: algo.TokenBucket(algo.PerHour(10), burst), OnFailure: headgate.FailOpen}
	}
	old, err := headgate.New(s, []headgate.Policy{policy("old", 10)}, nil)
	require.NoError(t, err)
	limiter, err := old.With(policy("api", 10))
	require.NoError(t, err)
	raised, err := limiter.With(policy("api", 1_000_000))
	require.NoError(t, err)
	admit := func(by, charged *headgate.Limiter, key string) (n int) {
		for range 20 {
			d, err := by.Allow(t.Context(), key)
			require.NoError(t, err)
			if !d.Allowed {
				continue
			}
			n++
			if charged != nil {
				_, err = charged.Allow(t.Context(), key)
				require.NoError(t, err)
			}
		}
		return n
	}
	require.Equal(t, 10, admit(limiter, old, "both"), "a process of step 3")
	require.Zero(t, admit(old, raised, "both"), "a process of step 1, or a way back")
	require.Equal(t, 10, admit(old, raised, "other"))
	require.Zero(t, admit(limiter, old, "other"))
	require.Equal(t, 20, admit(limiter, nil, "uncharged")+admit(old, raised, "uncharged"))
}

// TestSentinel: the command finds the primary.
func TestSentinel(t *testing.T) {
	server := redistest.Start(t)
	sentinel := server.Sentinel(t, "mymaster").Addr()
	args := []string{"-sentinel", "mymaster", "-redis", "127.0.0.1:1," + sentinel}
	require.Contains(t, exec(t, 0, append([]string{"ping"}, args...)...), "ok")
	require.Contains(t, exec(t, 0, append([]string{"peek", "user:42"}, args...)...), "nothing is stored")
}

// TestPing: the primaries that were checked are named, and nothing of it is left.
func TestPing(t *testing.T) {
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			got := decode[pinged](t, 0, append([]string{"ping"}, p.args...)...)
			require.Len(t, got.Nodes, map[string]int{"standalone": 1, "cluster": 3}[where])
			require.Subset(t, strings.Split(p.args[len(p.args)-1], ","), got.Nodes)
			require.Positive(t, got.Took)
			want := fmt.Sprintf("ok: primaries checked: %d (%s), for version, rights, configuration and a trial request, in ",
				len(got.Nodes), strings.Join(got.Nodes, ", "))
			require.Contains(t, exec(t, 0, append([]string{"ping"}, p.args...)...), want)
			require.Empty(t, exec(t, 0, append([]string{"keys"}, p.args...)...))
		})
	}
}

func TestUsage(t *testing.T) {
	require.Contains(t, exec(t, 2), "usage: headgate COMMAND")
	require.Contains(t, exec(t, 0, "-h"), "usage: headgate COMMAND")
	for says, args := range map[string][]string{
		"headgate: peek: want a KEY":                       {"peek"},
		"headgate: peek: want one KEY, not 2 arguments":    {"peek", "a", "b"},
		"headgate: keys: want one PREFIX, not 2 arguments": {"keys", "a", "b"},
		"headgate: pekk: unknown command":                  {"pekk", "a"},
		`headgate: "\x1b[2J": unknown command`:             {"\x1b[2J"},
		"headgate: ping: want no argument":                 {"ping", "a"},
		"flag provided but not defined: -nosuch":           {"ping", "-nosuch"},
	} {
		require.Equal(t, says+"\n"+hint(args[0])+"\n", exec(t, 2, args...))
	}
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{2, "want one of them", []string{"ping", "-cluster", "a:1", "-sentinel", "a"}},
		{2, "at least 1", []string{"top", "-n", "-1"}},
		{2, "at least 1", []string{"top", "-sample", "0"}},
		{2, "want one of them", []string{"peek", "a", "-plan", "free", "-tenant", "acme"}},
		{2, "prefix", []string{"ping", "-prefix", "{"}},
		{2, "-timeout", []string{"ping", "-timeout", "0"}},
		{2, "-timeout", []string{"ping", "-timeout", "0", "-cluster", "a:1"}},
		{2, "-timeout", []string{"ping", "-timeout", "-1s"}},
		{2, "-timeout", []string{"ping", "-timeout", "1h"}},
		{2, "-timeout", []string{"ping", "-timeout", "1h", "-cluster", "a:1"}},
		{2, "want -policies FILE", []string{"top"}},
		{2, "no such file", []string{"peek", "a", "-policies", "none.yaml"}},
		{2, "-plan", []string{"peek", "a", "-policies", write(t), "-plan", "gold"}},
		{2, "one for each of 5 policies", []string{"peek", "a", "-policies", write(t), "-cost", "1,2"}},
		{2, "whole numbers", []string{"peek", "a", "-policies", write(t), "-cost", "x"}},
		{2, "want -cluster or -sentinel", []string{"ping", "-redis", "127.0.0.1:1,127.0.0.1:2"}},
		{1, "refused", []string{"peek", "a", "-redis", "127.0.0.1:1"}},
		{1, "refused", []string{"peek", "a", "-redis", "127.0.0.1:1", "-policies", write(t)}},
		{1, "no node is known", []string{"peek", "a", "-cluster", "127.0.0.1:1", "-timeout", "100ms"}},
	} {
		require.Contains(t, exec(t, c.status, c.args...), c.says, "%q", c.args)
	}
}

// TestExplain: errors speak of keys and nodes, once each.
func TestExplain(t *testing.T) {
	late := errors.New("127.0.0.1:1: no answer within 5s")
	for _, c := range []struct {
		command, says string
		err           error
	}{
		{"peek", late.Error(), backend.Wrap(headgate.ErrUnavailable, late)},
		{"peek", "no answer", headgate.ErrUnavailable},
		{"ping", "no answer: " + late.Error(), backend.Wrap(headgate.ErrPerhapsCounted, late)},
		{"reset", "no answer, perhaps reset: " + late.Error(), backend.Wrap(headgate.ErrPerhapsCounted, late)},
		{"keys", late.Error(), errors.Join(backend.Wrap(headgate.ErrUnavailable, late), backend.Wrap(headgate.ErrUnavailable, late))},
		{"keys", late.Error() + "\n127.0.0.1:2: refused", errors.Join(late, errors.New("headgate: 127.0.0.1:2: refused"))},
	} {
		require.Equal(t, c.says, explain(c.command, c.err))
	}
}

// TestFrozenServerIsNamedSo: the client's own timeout, which is as long, may end a call
// before the command's.
func TestFrozenServerIsNamedSo(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	defer server.Cont()
	said := make([]bytes.Buffer, 60)
	faulttest.Go(len(said), func(i int) {
		run(t.Context(), []string{"keys", "-redis", server.Addr(), "-timeout", "100ms"}, &said[i], &said[i])
	})()
	for i := range said {
		require.Contains(t, said[i].String(), server.Addr()+": no answer within 100ms")
	}
}

// TestEmptyKey: a script whose variable is not set learns so.
func TestEmptyKey(t *testing.T) {
	for _, args := range [][]string{{"reset", ""}, {"peek", ""}, {"reset", "-policies", write(t), ""}} {
		stdout, stderr := output(t, 2, args...)
		require.Empty(t, stdout)
		require.Equal(t, "headgate: the key is empty\n"+hint(args[0])+"\n", stderr)
	}
}

// TestPlansWithoutCounts: a plan without limits, one that is blocked and policies with per
// have an answer, and no failure.
func TestPlansWithoutCounts(t *testing.T) {
	server, path := redistest.Start(t), filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`policies:
  requests: {algorithm: fixed-window, limit: 10, period: 1d}
  tokens: {algorithm: fixed-window, limit: 100, period: 1d, per: model}
  large: {algorithm: fixed-window, limit: 5, period: 1d, per: model, only: large}
plans:
  free: {requests: {}, tokens: {}, large: {limit: blocked}}
  paid: {requests: {limit: unlimited}, tokens: {}, large: {}}
  open: {requests: {limit: unlimited}}
  shut: {requests: {limit: blocked}}
default: free
tenants: {acme: paid, evil: shut, vip: open}
`), 0o600))
	run := func(status int, args ...string) (stdout, stderr string) {
		return output(t, status, append(args, "-policies", path, "-redis", server.Addr())...)
	}
	for _, by := range [][]string{{"-tenant", "vip"}, {"-plan", "open"}} {
		out, errs := run(0, append(by, "peek", "k")...)
		require.Equal(t, "k would pass: the file has no limit for it\n", out)
		require.Empty(t, errs)
		out, _ = run(0, append(by, "peek", "k", "-json")...)
		require.JSONEq(t, `{"key": "k", "allowed": true, "binding": "", "known": "not_counted", "policies": []}`, out)
		out, _ = run(0, append(by, "reset", "k")...)
		require.Equal(t, "nothing was reset: no policy of the file counts k; without -policies all that is stored of it is reset\n", out)
		_, errs = run(2, append(by, "top")...)
		require.Contains(t, errs, "no key can be full")
	}
	for _, by := range [][]string{{"-tenant", "evil"}, {"-plan", "shut"}, {"-of", "model=large"}} {
		out, _ := run(0, append(by, "peek", "k")...)
		require.Equal(t, "k would be denied: the file blocks it\n", out)
		out, _ = run(0, append(by, "reset", "k", "-json")...)
		require.JSONEq(t, `{"key": "k", "reset": [], "used": {}}`, out)
		_, errs := run(2, append(by, "top")...)
		require.Contains(t, errs, "no key can be full")
	}

	f, err := policyfile.Load(path, &policyfile.Options{OnFailure: headgate.FailClosed})
	require.NoError(t, err)
	limiters, err := f.Limiters(open(t, []string{"-redis", server.Addr()}).store, nil)
	require.NoError(t, err)
	parts, err := limiters.PartsFor("acme", "k", policyfile.Use{Of: map[string]string{"model": "large"}, Costs: map[string]int64{"tokens": 30}})
	require.NoError(t, err)
	d, err := headgate.All(t.Context(), parts...)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	of := []string{"-tenant", "acme", "-of", "model=large"}
	out, errs := run(0, append(of, "peek", "k")...)
	require.Contains(t, out, "k:model:large would pass")
	require.Regexp(t, `tokens .* 100 +30 +70 `, out)
	require.Regexp(t, `large .* 5 +1 +4 `, out)
	require.Empty(t, errs)
	out, _ = run(0, append(of, "top", "-every", "0")...)
	require.Contains(t, out, "30.0%  k:model:large  tokens  30")
	out, _ = run(0, append(of, "reset", "k")...)
	require.Contains(t, out, "k:model:large was reset for the policies of the file:\n  tokens: 30 units had been used\n  large: 1 units had been used\n")
	out, errs = run(0, "peek", "k")
	require.Contains(t, out, "k would pass; not all policies were asked\n")
	require.Contains(t, out, "\nnot asked: tokens FixedWindow(100 per 24h0m0s) {per: model}\nnot asked: large blocked {per: model, only: [large]}\nto ask those with per: -of DIMENSION=VALUE")
	require.Empty(t, errs)
	out, errs = run(0, "peek", "k", "-of", "model=small", "-json")
	require.Equal(t, "note: large limits only other values of model: [\"large\"]\n", errs)
	require.Contains(t, out, `"not_asked":[{"policy":"requests","algorithm":"FixedWindow(10 per 24h0m0s)"}]`)
	out, _ = run(0, "peek", "k", "-plan", "paid")
	require.Contains(t, out, "k would pass: the file has no limit for it; not all policies were asked\nnot asked: tokens")
	_, errs = run(0, "top", "-every", "0")
	require.Equal(t, "note: policies with per are left out: -of model=VALUE is for them\n", errs)
}

// TestUnlistedTenant: a tenant that may be mistyped has the default plan, as in
// the service, and the command says so.
func TestUnlistedTenant(t *testing.T) {
	path, server := write(t), redistest.Start(t)
	for _, command := range [][]string{{"peek", "k"}, {"reset", "k"}, {"top", "-every", "0"}} {
		for tenant, note := range map[string]string{
			"acmee": "note: the file lists no tenant \"acmee\": the default policies are used\n", "acme": "",
		} {
			args := append(command, "-policies", path, "-tenant", tenant, "-redis", server.Addr())
			stdout, stderr := output(t, 0, args...)
			require.Equal(t, note, stderr)
			require.NotEmpty(t, stdout)
		}
	}
}

// TestResetSaysWhatWasThere: also where that is nothing, which is no failure:
// after a reset the key is as asked for. A reset of something ends with what no
// reset can do.
func TestResetSaysWhatWasThere(t *testing.T) {
	path, server := write(t), redistest.Start(t)
	at := []string{"-redis", server.Addr()}
	p := place{store: open(t, at).store}
	reset := func(args ...string) string {
		return exec(t, 0, append(append([]string{"reset", "k"}, args...), at...)...)
	}
	const still = "a process that has denied the key may deny it from its deny cache for up to 1 s more\n"
	require.Equal(t, "nothing was stored of k that could be reset\n", reset())
	require.Equal(t, "k was reset for the policies of the file:\n  fixed: nothing had been used\n"+still, reset("-policies", path, "-plan", "one"))
	take(t, p.limiter(t, "one"), "k", 1, 7)
	require.Equal(t, "k was reset for the policies of the file:\n  fixed: 7 units had been used\n"+still, reset("-policies", path, "-plan", "one"))
	take(t, p.limiter(t, "one"), "k", 1, 7)
	require.Equal(t, "k was reset; counts deleted: 1\n"+still, reset())

	take(t, p.limiter(t, "one"), "k", 1, 7)
	require.NoError(t, server.Client(t).HSet(t.Context(), "headgate:{k}", "f1d/fixed", "damaged").Err())
	said := reset("-policies", path, "-plan", "one")
	require.Contains(t, said, "how much was used could not be read")
	require.True(t, strings.HasSuffix(said, still))
	require.Contains(t, exec(t, 0, append([]string{"peek", "k"}, at...)...), "nothing is stored")
}

// TestNothingStored: a reader who knows an address learns how its key looks.
func TestNothingStored(t *testing.T) {
	server := redistest.Start(t)
	require.Equal(t, "nothing is stored of 127.0.0.1\n"+
		"headgate keys lists the stored keys; middleware/httplimit counts an address as ip:203.0.113.7 or ip:2001:db8:1:2::/64\n",
		exec(t, 0, "peek", "127.0.0.1", "-redis", server.Addr()))
}

// TestTokenBucketWithoutPolicies: what is stored is what was used, not what is left.
func TestTokenBucketWithoutPolicies(t *testing.T) {
	server := redistest.Start(t)
	at := []string{"-redis", server.Addr()}
	p := place{store: open(t, at).store}
	take(t, p.limiter(t, "plain"), "k", 1, 10)
	require.Contains(t, exec(t, 0, append([]string{"peek", "k"}, at...)...),
		"  bucket, TokenBucket: 10 units used when it was last charged; they come back at the policy's rate\n")
}

// TestKeysThatLookLikeFlags: what follows -- is a key.
func TestKeysThatLookLikeFlags(t *testing.T) {
	server := redistest.Start(t)
	require.Contains(t, exec(t, 0, "peek", "-redis", server.Addr(), "--", "-json"), "nothing is stored of -json")
}

// sorted returns lines in order: SCAN has none.
func sorted(lines string) string {
	all := strings.SplitAfter(lines, "\n")
	slices.Sort(all)
	return strings.Join(all, "")
}
