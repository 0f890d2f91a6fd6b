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
		require.False(t, f.Blocked(tenant))
		require.Len(t, f.For(tenant), len(want))
	}
	for _, tenant := range []string{"evil", "odd"} {
		_, err := l.Parts(tenant, "k")
		require.ErrorIs(t, err, headgate.ErrBlocked)
		require.True(t, f.Blocked(tenant))
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
	_, err = w.Parts("somebody", "k")
	require.ErrorIs(t, err, headgate.ErrBlocked)
	parts, err := w.Parts("acme", "k")
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
}

// TestNamesInErrors are quoted and cut, and the default plan has a name.
func TestNamesInErrors(t *testing.T) {
	_, err := Parse("limits.yaml", []byte(worded[:strings.Index(worded, "  acme")]+"  acme: p\n"), nil)
	require.ErrorContains(t, err, `want (default), banned, free or paid`)
	for _, name := range []string{"a\nb", "\x1b[31m", strings.Repeat("x", 10<<20)} {
		text := fmt.Sprintf("policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1m, on-failure: open}\ntenants: {%q: nosuch}\n", name)
		_, err := Parse("limits.yaml", []byte(text), nil)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 300)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "\x1b")
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
	require.EqualValues(t, 2, w.File().For("")[0].Algorithm.Max())
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
	require.Empty(t, f.For("acme"))
	require.False(t, f.Blocked("acme"))
	require.True(t, f.Blocked("spam"))
}
