package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// file has every algorithm, some of them on spread keys too, and a shadow policy.
const file = `
policies:
  fixed: {algorithm: fixed-window, limit: 1000, period: 1d}
  sliding: {algorithm: sliding-window, limit: 1000, period: 30d}
  bucketed: {algorithm: bucketed-window, limit: 1000, period: 1d, buckets: 6}
  log: {algorithm: sliding-log, limit: 1000, period: 1d}
  bucket: {algorithm: token-bucket, limit: 10, period: 30d, burst: 1000}
  compact: {algorithm: compact-log, limit: 1000, period: 1d}
  civil: {algorithm: calendar, limit: 1000, period: month, anchor: 15, zone: Europe/Berlin}
  tighter: {algorithm: fixed-window, limit: 250, period: 12h, shadow: true}
  running: {algorithm: in-flight, limit: 20}
plans:
  plain: [fixed, sliding, bucketed, log, bucket]
  rest: [compact, civil, tighter]
  calls: [civil, running]
  spread: [fixed, log, bucket]
  one: [fixed]
default: plain
shards: {spread: 4}
tenants:
  acme: {policies: {fixed: {limit: 40}}}
`

// names are keys that make trouble: for hash tags, patterns and terminals.
var names = []string{
	"user:42", "a{b}c", "{tag}", "}{", "~marked~", "with space", "stars*?[a-c]\\x", "bytes\xff\x00", "ü", strings.Repeat("long", 40),
}

// place is a server to look at, and what the command needs to find it.
type place struct {
	args  []string
	store backend.Store
	admin redis.UniversalClient
}

// unhurried is for a busy machine.
var unhurried = &cluster.Options{Budget: 10 * time.Second}

// TestMain stops the shared cluster after the last test.
func TestMain(m *testing.M) {
	code := m.Run()
	redistest.CloseShared()
	os.Exit(code)
}

// places are a server and a cluster.
func places(t *testing.T) map[string]place {
	server, nodes := redistest.Start(t), redistest.SharedCluster(t)
	one, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	many, err := cluster.Open(nodes.Addrs(), unhurried)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, one.Close()); require.NoError(t, many.Close()) })
	return map[string]place{
		"standalone": {[]string{"-redis", server.Addr()}, one, server.Client(t)},
		"cluster":    {[]string{"-cluster", strings.Join(nodes.Addrs(), ",")}, many, nodes.Client(t)},
	}
}

// limiter returns the limiter of a plan of the file.
func (p place) limiter(t *testing.T, plan string) *headgate.Limiter {
	t.Helper()
	f, err := policyfile.Parse("limits.yaml", []byte(file), &policyfile.Options{OnFailure: headgate.FailClosed})
	require.NoError(t, err)
	limiters, err := f.Limiters(p.store, nil)
	require.NoError(t, err)
	l, ok := limiters.Plan(plan)
	require.True(t, ok)
	return l
}

func write(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	return path
}

// exec runs a command line and returns what it prints.
func exec(t *testing.T, status int, args ...string) string {
	t.Helper()
	out, errs := output(t, status, args...)
	return out + errs
}

func output(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, status, run(t.Context(), args, &out, &errs), "%q: %s%s", args, &out, &errs)
	return out.String(), errs.String()
}

// decode runs a command line with -json and returns what it prints.
func decode[T any](t *testing.T, status int, args ...string) (v T) {
	t.Helper()
	out, _ := output(t, status, append(args, "-json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	return v
}

func take(t *testing.T, l *headgate.Limiter, key string, times int, cost int64) {
	t.Helper()
	for range times {
		d, err := l.AllowN(t.Context(), key, cost)
		require.NoError(t, err)
		require.NoError(t, d.Err)
		require.True(t, d.Allowed)
	}
}

// spreads are the numbers of sub-keys of the plans.
var spreads = map[string]int{"plain": 0, "rest": 0, "spread": 4}

// says is part of what is printed of a plan's key.
var says = map[string]string{
	"plain": "log, SlidingLog of 24h0m0s", "rest": "civil, Calendar of m15/Europe/Berlin: ", "spread": "log, SlidingLog of 24h0m0s",
}

// TestStored: without a policy file what is printed is what was taken.
func TestStored(t *testing.T) {
	for where, p := range places(t) {
		for _, plan := range slices.Sorted(maps.Keys(spreads)) {
			l := p.limiter(t, plan)
			for i, key := range names {
				t.Run(where+"/"+plan+"/"+key, func(t *testing.T) {
					take(t, l, key, i+1, 7)
					got := decode[kept](t, 0, append([]string{"peek", key}, p.args...)...)
					require.Empty(t, got.Unknown)
					used := map[string]int64{}
					for _, c := range got.Counts {
						if c.Shards == spreads[plan] {
							used[c.Policy] = c.Used
							require.Equal(t, c.Algorithm == "TokenBucket", c.ResetAfter == 0)
							require.LessOrEqual(t, c.SubKeys, max(1, c.Shards))
						}
					}
					for _, policy := range l.Policies() {
						require.EqualValues(t, 7*(i+1), used[policy.Name], policy.Name)
					}
					require.Contains(t, exec(t, 0, append([]string{"peek", key}, p.args...)...), says[plan])
				})
			}
			t.Run(where+"/"+plan+"/keys", func(t *testing.T) { lists(t, p, plan) })
		}
		for _, key := range names {
			t.Run(where+"/reset/"+key, func(t *testing.T) {
				exec(t, 0, append([]string{"reset", key}, p.args...)...)
				for plan := range spreads {
					nothingUsed(t, p.limiter(t, plan), key)
				}
				require.Contains(t, exec(t, 0, append([]string{"peek", key}, p.args...)...), "nothing is stored")
			})
		}
		keys, err := p.admin.DBSize(t.Context()).Result()
		require.NoError(t, err)
		require.Zero(t, keys, "all was reset, and nothing is left")
	}
}

// lists: every key is listed, under its name where that is stored.
func lists(t *testing.T, p place, plan string) {
	all := exec(t, 0, append([]string{"keys"}, p.args...)...)
	for _, key := range names {
		if slot := word(key); plain(key) {
			require.Contains(t, all, slot+"\t")
			only := exec(t, 0, append([]string{"keys", key}, p.args...)...)
			for line := range strings.Lines(only) {
				require.True(t, strings.HasPrefix(line, slot+"\t"), line)
			}
			require.NotEmpty(t, only)
		}
	}
	require.Contains(t, all, "(a hash)\t")
	require.Equal(t, plan == "spread", strings.Contains(all, "{~user:42~4"))
}

// plain reports whether a key stands in Redis in clear.
func plain(key string) bool {
	return len(key) < 65 && !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("{}~", r) })
}

func nothingUsed(t *testing.T, l *headgate.Limiter, key string) {
	t.Helper()
	p, err := look(t.Context(), l, key, make([]int64, len(l.Policies())))
	require.NoError(t, err)
	for _, s := range p.Policies {
		require.Zero(t, s.Used, "%+v", s)
	}
}

// TestReset: with a policy file the counts of its policies are gone, and no
// others.
func TestReset(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		for _, key := range names {
			t.Run(where+"/"+key, func(t *testing.T) {
				plain, spread := p.limiter(t, "plain"), p.limiter(t, "spread")
				take(t, plain, key, 1, 9)
				take(t, spread, key, 1, 9)
				exec(t, 0, append([]string{"reset", "-policies", path, "-plan", "spread", key}, p.args...)...)
				nothingUsed(t, spread, key)
				left, err := look(t.Context(), plain, key, make([]int64, 5))
				require.NoError(t, err)
				require.EqualValues(t, 9, left.Policies[0].Used)
				exec(t, 0, append([]string{"reset", "-policies", path, key}, p.args...)...)
				nothingUsed(t, plain, key)
			})
		}
	}
}

// TestTopLeavesOutCorruptKeys: a key that is not Headgate's hides no other.
func TestTopLeavesOutCorruptKeys(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			take(t, p.limiter(t, "plain"), "good", 1, 100)
			require.NoError(t, p.admin.Set(t.Context(), "headgate:{bad}", "x", time.Hour).Err())
			args := append([]string{"top", "-policies", path, "-every", "0"}, p.args...)
			got := decode[topped](t, 0, args...)
			require.Equal(t, 1, got.Corrupt)
			require.Equal(t, callerKey("good"), got.Fullest[0].Key)
			require.Contains(t, exec(t, 0, args...), "corrupt: 1")
		})
	}
}

func TestTop(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			l := p.limiter(t, "plain")
			for i, key := range []string{"a", "b", "c", "a b"} {
				take(t, l, key, i+1, 100)
			}
			got := decode[topped](t, 0, append([]string{"top", "-policies", path, "-every", "0", "-n", "2"}, p.args...)...)
			require.Equal(t, 8, got.Read, "a hash and a log of each key")
			require.Equal(t, 2, got.Hashed)
			require.Len(t, got.Fullest, 2)
			require.Equal(t, callerKey("c"), got.Fullest[0].Key)
			require.Equal(t, 30.0, got.Fullest[0].Percent)
			require.EqualValues(t, 300, got.Fullest[0].Used)
			require.Equal(t, callerKey("b"), got.Fullest[1].Key)

			ctx, interrupt := context.WithCancel(t.Context()) // as a signal does
			defer interrupt()
			time.AfterFunc(700*time.Millisecond, interrupt)
			var out, errs bytes.Buffer
			args := append([]string{"top", "-policies", path, "-tenant", "acme", "-every", "100ms", "-sample", "3"}, p.args...)
			require.Zero(t, run(ctx, args, &out, &errs), errs.String())
			require.Greater(t, strings.Count(out.String(), "FULL"), 2, "refreshed")
			require.Contains(t, out.String(), "750.0%  c", "the tenant's limit is 40")
		})
	}
}

func TestPeekEqualsPeek(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		for _, plan := range slices.Sorted(maps.Keys(spreads)) {
			l := p.limiter(t, plan)
			for i, key := range names {
				t.Run(where+"/"+plan+"/"+key, func(t *testing.T) {
					take(t, l, key, i+1, 7)
					args := append([]string{"peek", "-policies", path, "-plan", plan, "-cost", "200"}, p.args...)
					costs := make([]int64, len(l.Policies()))
					for i := range costs {
						costs[i] = 200
					}
					before, err := look(t.Context(), l, key, costs)
					require.NoError(t, err)
					printed := decode[looked](t, 0, append(args, key)...)
					after, err := look(t.Context(), l, key, costs)
					require.NoError(t, err)
					same(t, before, printed, after)
				})
			}
		}
	}
}

// TestPeekBesideTheFile: a file that is not the service's shows in what else is stored.
func TestPeekBesideTheFile(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.yaml")
	text := strings.ReplaceAll(strings.ReplaceAll(file, "period: 30d", "period: 20d"), "spread: 4", "spread: 8")
	require.NoError(t, os.WriteFile(other, []byte(text), 0o600))
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			peek := func(path, plan, key string) []string {
				return append([]string{"peek", key, "-policies", path, "-plan", plan}, p.args...)
			}
			require.Contains(t, exec(t, 0, peek(other, "plain", "k")...), "\nnothing is stored of the key\nheadgate keys lists")
			take(t, p.limiter(t, "plain"), "k", 1, 7)
			said := exec(t, 0, peek(other, "plain", "k")...)
			require.Contains(t, said, "\nalso stored, not in this plan: sliding, SlidingWindow of 720h0m0s\n")
			require.Equal(t, 1, strings.Count(said, "also stored"), said)
			got := decode[looked](t, 0, peek(other, "plain", "k")...)
			require.Len(t, got.Others, 1)
			sliding := counted{Policy: "sliding", Algorithm: "SlidingWindow", Period: micros(720 * time.Hour), SubKeys: 1}
			require.Equal(t, sliding, *got.Others[0])
			require.NotContains(t, exec(t, 0, peek(write(t), "plain", "k")...), "also stored", "all of it is in the file")

			take(t, p.limiter(t, "spread"), "s", 9, 7)
			require.Contains(t, exec(t, 0, peek(other, "spread", "s")...),
				"not in this plan: log, SlidingLog of 24h0m0s, in 4 of 4 sub-keys\n")
			require.NotContains(t, exec(t, 0, peek(write(t), "spread", "s")...), "also stored")
		})
	}
}

// TestShadow: a shadow policy that is spent is marked, and the call would pass.
func TestShadow(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			take(t, p.limiter(t, "rest"), "k", 1, 249)
			text := exec(t, 0, append([]string{"peek", "-policies", path, "-plan", "rest", "-cost", "5", "k"}, p.args...)...)
			require.Contains(t, text, "k would pass")
			require.Contains(t, text, "tighter (shadow)  FixedWindow(250 per 12h0m0s)")
			require.Contains(t, text, "Calendar(1000 per month from 15, Europe/Berlin)")
			got := decode[looked](t, 0, append([]string{"peek", "-policies", path, "-plan", "rest", "-cost", "5", "k"}, p.args...)...)
			require.True(t, got.Policies[2].Shadow)
			require.Positive(t, got.Policies[2].RetryAfter)
			text = exec(t, 0, append([]string{"peek", "-policies", path, "-plan", "rest", "-cost", "1,1,251", "k"}, p.args...)...)
			require.Regexp(t, `tighter \(shadow\) .* 250 +249 +1 +never `, text)
			require.Contains(t, exec(t, 0, append([]string{"top", "-policies", path, "-plan", "rest", "-every", "0"}, p.args...)...), "tighter (shadow)  249")
		})
	}
}

// TestCallsInFlight: slots are counted by the policies of a file too, and reset.
func TestCallsInFlight(t *testing.T) {
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			l := p.limiter(t, "calls")
			for range 3 {
				_, d, err := l.Reserve(t.Context(), headgate.Call{Key: "k"})
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			args := append([]string{"-policies", path, "-plan", "calls", "k"}, p.args...)
			got := decode[looked](t, 0, append([]string{"peek"}, args...)...)
			require.EqualValues(t, 3, got.Policies[1].Used)
			require.EqualValues(t, 17, got.Policies[1].Remaining)
			require.Contains(t, exec(t, 0, append([]string{"peek"}, args...)...), "InFlight(20")
			exec(t, 0, append([]string{"reset"}, args...)...)
			got = decode[looked](t, 0, append([]string{"peek"}, args...)...)
			require.Zero(t, got.Policies[1].Used)
		})
	}
}

// same holds what was printed between two peeks: only the waits differ, by the
// time that has passed.
func same(t *testing.T, before, printed, after looked) {
	t.Helper()
	require.Len(t, printed.Policies, len(before.Policies))
	for i, p := range printed.Policies {
		b, a := before.Policies[i], after.Policies[i]
		require.True(t, b.RetryAfter >= p.RetryAfter && p.RetryAfter >= a.RetryAfter, "%+v", p)
		require.True(t, b.ResetAfter >= p.ResetAfter && p.ResetAfter >= a.ResetAfter, "%+v", p)
		b.RetryAfter, b.ResetAfter, b.State = p.RetryAfter, p.ResetAfter, headgate.State{}
		require.Equal(t, b, p)
		require.NotZero(t, p.Used)
	}
	printed.Policies, before.Policies = nil, nil
	text, err := json.Marshal(before.Key) // which JSON may have in base64
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &before.Key))
	require.Equal(t, before, printed)
}
