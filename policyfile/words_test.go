package policyfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

const worded = `policies:
  requests: {algorithm: sliding-window, limit: 5, period: 1m, on-failure: open}
  tokens: {algorithm: sliding-window, limit: unlimited, period: 1m, on-failure: open}
plans:
  free: [requests, tokens]
  paid: {requests: {limit: unlimited}, tokens: {limit: 100}}
  banned: {requests: {limit: blocked}}
default: free
tenants:
  acme: paid
  evil: banned
  vip: {plan: paid, policies: {tokens: {limit: unlimited}}}
  odd: {plan: free, policies: {requests: {limit: blocked}}}
`

// TestWords in place of a limit: a policy is left out, or nothing passes.
func TestWords(t *testing.T) {
	f, err := Parse("limits.yaml", []byte(worded), nil)
	require.NoError(t, err)
	l, err := f.Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	for tenant, want := range map[string][]string{"somebody": {"requests"}, "acme": {"tokens"}, "vip": {}} {
		parts, err := l.Parts(tenant, "k", 1)
		require.NoError(t, err)
		got := []string{}
		for _, part := range parts {
			for _, p := range part.Limiter.Policies() {
				got = append(got, p.Name)
			}
		}
		require.Equal(t, want, got, tenant)
		require.False(t, f.For(tenant).Blocked)
		require.Len(t, f.For(tenant).Policies, len(want))
	}
	for _, tenant := range []string{"evil", "odd"} {
		_, err := l.Parts(tenant, "k")
		require.ErrorIs(t, err, headgate.ErrBlocked)
		require.True(t, f.For(tenant).Blocked)
		require.Nil(t, l.For(tenant))
	}
	_, err = Parse("limits.yaml", []byte(strings.Replace(worded, "limit: blocked", "limit: bloked", 1)), nil)
	require.ErrorContains(t, err, `"bloked"; want a whole number`)
	_, err = Parse("limits.yaml", []byte("policies: {a: {algorithm: fixed-window, limit: unlimited, period: 1m, on-failure: open}}"), nil)
	require.NoError(t, err, "a file may limit nobody")
}

// TestDefaultWithoutLimits: a file whose default has no limits is followed all the same.
func TestDefaultWithoutLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, strings.Replace(worded, "default: free", "default: banned", 1))
	w, err := Watch(path, memory.New(nil), nil)
	require.NoError(t, err)
	defer w.Close()
	_, err = w.Limiters().Parts("somebody", "k")
	require.ErrorIs(t, err, headgate.ErrBlocked)
	parts, err := w.Limiters().Parts("acme", "k")
	require.NoError(t, err)
	require.Len(t, parts, 1)
}

// TestSurrogates: JSON has a character beyond 16 bits as a pair of escapes.
func TestSurrogates(t *testing.T) {
	const text = `{"policies": {"a": {"algorithm": "fixed-window", "limit": 1, "period": "1m", "on-failure": "open"}},
"plans": {"\ud83d\ude00\u00e9\\ud83d": ["a"]}, "default": "\uD83D\uDE00\u00E9\\ud83d"}`
	f, err := Parse("limits.json", []byte(text), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"\U0001F600é\\ud83d"}, f.Plans())
	marked, err := Parse("limits.json", []byte("\ufeff"+text), nil)
	require.NoError(t, err, "with a byte order mark")
	require.Equal(t, f.Plans(), marked.Plans())
}

// TestNamesInErrors: whatever the file has in a place, an error shows it on one line, and
// cut. The default plan has a name.
func TestNamesInErrors(t *testing.T) {
	_, err := Parse("limits.yaml", []byte(worded[:strings.Index(worded, "  acme")]+"  acme: p\n"), nil)
	require.ErrorContains(t, err, `want (default), banned, free or paid`)
	const window = "algorithm: fixed-window, limit: 1, period: 1m, on-failure: open"
	for _, file := range []string{
		"%[1]s: 1", "policies: {%[1]s: {}}", "policies: {%[1]s: {" + window + "}}", "policies: {a: {%[1]s: 1}}", "policies: {a: %[1]s}",
		"policies: {a: {algorithm: %[1]s}}", "policies: {a: {algorithm: fixed-window, limit: %[1]s}}",
		"policies: {a: {algorithm: fixed-window, limit: 1, period: %[1]s}}", "policies: {a: {" + window + ", shadow: %[1]s}}",
		"policies: {a: {algorithm: fixed-window, limit: 1, period: 1m, on-failure: %[1]s}}", "borrow: %[1]s\npolicies: {a: {" + window + "}}",
		"policies: {a: {algorithm: calendar, limit: 1, period: %[1]s, zone: UTC, on-failure: open}}",
		"policies: {a: {algorithm: calendar, limit: 1, period: day, zone: %[1]s, on-failure: open}}",
		"policies: {a: {algorithm: calendar, limit: 1, period: week, week-start: %[1]s, zone: UTC, on-failure: open}}",
		"policies: {a: {" + window + ", only: %[1]s}}", "policies: {a: {" + window + ", per: %[1]s}}\nshards: 2",
		"policies: {a: {" + window + "}}\nplans: {b: [%[1]s]}", "policies: {a: {" + window + "}}\nplans: {b: [%[1]s, %[1]s]}",
		"policies: {a: {" + window + "}}\nplans: {b: {%[1]s: {}}}", "policies: {a: {" + window + "}}\nplans: {%[1]s: []}",
		"policies: {a: {" + window + "}}\nplans: {%[1]s: [a]}", "policies: {a: {" + window + "}}\nplans: {b: [a]}\ndefault: %[1]s",
		"policies: {a: {" + window + "}}\ntenants: {%[1]s: nosuch}", "policies: {a: {" + window + "}}\ntenants: {b: %[1]s}", "policies: {a: {" + window + "}}\ntenants: {b: {%[1]s: 1}}",
		"policies: {a: {" + window + "}}\ntenants: {b: {policies: {%[1]s: {}}}}",
		"policies: {a: *%[2]s}", "%%%[2]s\n---\n", "policies: {a: !%[2]s b}", "rate-limiter: {use-algo: %[1]s}", "rate-limiter: {window-size: %[1]s}",
	} {
		for _, name := range []string{"a\nb", "\x1b[31m", "\u202e", strings.Repeat("x", 1<<16)} {
			text := fmt.Sprintf(file, fmt.Sprintf("%q", name), strings.Trim(name, "\n\x1b[\u202e"))
			_, err := Parse("limits.yaml", []byte(text), nil)
			if err == nil { // the name is a right one there
				require.Contains(t, file, "per: ")
				continue
			}
			require.Less(t, len(err.Error()), 1400, "%.60s", file)
			require.NotRegexp(t, "[\n\x1b\u202e]", err.Error(), file)
		}
	}
}

// TestPipe: a file that is none does not keep Close waiting.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, version(1))
	told := make(chan error, 9)
	w, err := Watch(path, memory.New(nil), &Options{Interval: time.Millisecond, Reloaded: func(err error) { told <- err }})
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	for err == nil || errors.Is(err, os.ErrNotExist) {
		err = <-told
	}
	require.ErrorContains(t, err, "not a regular file")
	require.NoError(t, w.Close())
}

// TestReloadedPanics: the process goes on, with the new limits, and Err has the panic.
func TestReloadedPanics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, version(1))
	w, err := Watch(path, memory.New(nil), &Options{Interval: time.Millisecond, Reloaded: func(error) { panic("oops") }})
	require.NoError(t, err)
	defer w.Close()
	write(t, path, version(2))
	require.Eventually(t, func() bool { return w.Err() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, w.Err(), "oops")
	require.EqualValues(t, 2, w.File().For("").Policies[0].Algorithm.Max())
}

// TestWordsAreEnough: a blocked policy has no other field, and a plan without limits lists an
// unlimited policy.
func TestWordsAreEnough(t *testing.T) {
	f, err := Parse("limits.yaml", []byte(`
policies:
  requests: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}
  banned: {limit: blocked}
plans:
  free: [requests]
  paid: {requests: {limit: unlimited}}
  none: [banned]
default: free
tenants: {acme: paid, spam: none}
`), nil)
	require.NoError(t, err)
	require.Empty(t, f.For("acme").Policies)
	require.False(t, f.For("acme").Blocked)
	require.True(t, f.For("spam").Blocked)
}
