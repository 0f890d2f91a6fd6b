package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestHelp: what was asked for is on stdout, and -h of a command speaks of that command.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"help"}, {"version", "-h"}, {"help", "help"}, {"help", "version"}, {"help", "-h"}} {
		out, errs := output(t, 0, args...)
		require.Contains(t, out, "usage: headgate COMMAND [flags]")
		require.Contains(t, out, "-sample")
		require.Empty(t, errs)
	}
	for _, args := range [][]string{{"ping", "-h"}, {"help", "ping"}, {"ping", "-json", "-help"}} {
		out, errs := output(t, 0, args...)
		require.Contains(t, out, "usage: headgate ping [flags]")
		require.Contains(t, out, "-timeout")
		require.NotContains(t, out, "-cost")
		require.Empty(t, errs)
	}
	out, _ := output(t, 0, "peek", "-h")
	require.Contains(t, out, "usage: headgate peek KEY [flags]")
	require.Contains(t, out, "-cost")
	require.Contains(t, out, "A plan without limits, or one that is blocked, counts nothing")
	out, _ = output(t, 0, "top", "-h")
	require.Contains(t, out, "All keys are measured by the policies of one plan")
	out, _ = output(t, 0, "version")
	require.Regexp(t, `^headgate \S+\n$`, out)
	_, errs := output(t, 2)
	require.Contains(t, errs, "usage: headgate COMMAND")
	_, errs = output(t, 2, "help", "nosuch")
	require.Contains(t, errs, "unknown command")
}

// TestCommandLinesThatCannotRun end with status 2, and cost no connection.
func TestCommandLinesThatCannotRun(t *testing.T) {
	path := write(t)
	for _, args := range [][]string{
		{"ping", "-timeout", "10m"}, {"top", "-n", "0"}, {"peek", "k", "-plan", "a"}, {"peek", "k", "-plan", "a", "-tenant", "b"},
		{"peek", "k", "-policies", path, "-plan", "nosuch"}, {"peek", "k", "-policies", path, "-cost", "x"},
		{"peek", "k", "-policies", path, "-cost", "1,2,3,4,5,6,7"}, {"ping", "-cluster", "a:1", "-sentinel", "m"},
		{"peek", "k", "-header", "X-API-Key=secret"}, {"ping", "-header", "X-API-Key=secret"}, {"peek", "-header", "X-API-Key"},
		{"peek", "-header", "a b=c"}, {"peek", "base64:!"},
		{"peek", "k", "-cost", "x"}, {"peek", "k", "-cost", "-1"}, {"peek", "k", "-cost", "1,2,3"},
	} {
		_, errs := output(t, 2, append(args, "-redis", "127.0.0.1:1")...)
		require.NotEmpty(t, errs, "%q", args)
	}
	none := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(none, []byte("policies: {a: {algorithm: fixed-window, limit: 1, period: 1d}}"), 0o600))
	_, errs := output(t, 2, "peek", "k", "-policies", none, "-plan", "nosuch")
	require.Contains(t, errs, "the file has no plans")
}

// TestEachFlagIsChecked: a wrong value of any flag ends with status 2, is reported
// with the flag's name, and costs no connection.
func TestEachFlagIsChecked(t *testing.T) {
	require.Contains(t, exec(t, 2, "peek", "k", "-of", "model=a", "-of", "model=b"), "given twice")
	path := write(t)
	peek, top := []string{"peek", "k", "-policies", path}, []string{"top", "-policies", path}
	wrong := map[string][][]string{
		"redis": {
			{"ping", "-redis", "http://x"}, {"ping", "-redis", "x:y:z"}, {"ping", "-redis", "redis://x/y"}, {"ping", "-redis", "a:1,b:2"},
			{"ping", "-sentinel", "m", "-redis", "http://x"},
		},
		"cluster":  {{"ping", "-cluster", "http://x"}, {"ping", "-cluster", "a:1", "-sentinel", "m"}, {"ping", "-cluster", "a:1", "-redis", "a:1"}},
		"sentinel": {{"ping", "-sentinel", "m", "-cluster", "a:1"}},
		"ca":       {{"ping", "-ca", path}, {"ping", "-redis", "rediss://127.0.0.1:1", "-ca", "none.pem"}, {"ping", "-redis", "rediss://127.0.0.1:1", "-ca", path}},
		"cert":     {{"ping", "-cert", path}, {"ping", "-redis", "rediss://127.0.0.1:1", "-cert", path}, {"ping", "-redis", "rediss://127.0.0.1:1", "-cert", path, "-key", path}},
		"key":      {{"ping", "-key", path}, {"ping", "-redis", "rediss://127.0.0.1:1", "-key", path}},
		"prefix":   {{"ping", "-prefix", "{"}, {"ping", "-prefix", "{", "-cluster", "a:1"}},
		"timeout":  {{"ping", "-timeout", "x"}, {"ping", "-timeout", "0"}, {"ping", "-timeout", "-1s"}, {"ping", "-timeout", "61s"}},
		"json":     {{"ping", "-json=perhaps"}},
		"policies": {{"peek", "k", "-policies", "none.yaml"}, {"reset", "k", "-policies", t.TempDir()}, {"top", "-policies", "help_test.go"}, {"top"}},
		"plan":     {append(peek, "-plan", "none"), {"peek", "k", "-plan", "one"}},
		"tenant":   {append(peek, "-tenant", "acme", "-plan", "one"), {"reset", "k", "-tenant", "acme"}},
		"of":       {append(peek, "-of", "x"), append(peek, "-of", "model="), append(top, "-of", "none=x"), {"peek", "k", "-of", "model=large"}},
		"cost":     {append(peek, "-cost", "-1"), append(peek, "-cost", "x"), append(peek, "-cost", "1,2"), append(peek, "-cost", ""), append(peek, "-cost", "9999999999999999999")},
		"header":   {{"peek", "-header", "x"}, {"peek", "-header", "x="}, {"peek", "k", "-header", "x=y"}, {"ping", "-header", "x=y"}},
		"n":        {append(top, "-n", "0"), append(top, "-n", "-1"), append(top, "-n", "x")},
		"sample":   {append(top, "-sample", "0"), append(top, "-sample", "-1")},
		"every":    {append(top, "-every", "-1s"), append(top, "-every", "99ms"), append(top, "-every", "1ns"), append(top, "-every", "x")},

		"dimensions": {{"check", path, "-dimensions", ""}, {"check", path, "-dimensions", " ,"}},
	}
	new(session).flags(io.Discard).VisitAll(func(f *flag.Flag) {
		require.NotEmpty(t, wrong[f.Name], f.Name)
		for _, args := range wrong[f.Name] {
			if !slices.Contains(args, "-redis") && !slices.Contains(args, "-cluster") {
				args = append(slices.Clone(args), "-redis", "127.0.0.1:1")
			}
			out, errs := output(t, 2, args...)
			require.Empty(t, out, "%q", args)
			if f.Name != "policies" { // whose error has the file's name
				require.Contains(t, errs, f.Name, "%q", args)
			}
		}
	})
}

// TestKeysThatAreNoText: keys of other bytes differ in JSON, and can be given back.
func TestKeysThatAreNoText(t *testing.T) {
	redis := redistest.Shared(t)
	seen := map[string]bool{}
	for _, key := range []string{"k\xff", "k\xfe", "base64:x", "plain"} {
		b, err := json.Marshal(callerKey(key))
		require.NoError(t, err)
		var text string
		require.NoError(t, json.Unmarshal(b, &text))
		require.False(t, seen[text])
		seen[text] = true
		got, err := keyOf(text)
		require.NoError(t, err)
		require.Equal(t, key, got)
		kept := decode[map[string]any](t, 0, "peek", text, "-redis", redis.Addr())
		require.Equal(t, text, kept["key"])
	}
	require.True(t, seen["plain"])
}

// TestHeader: the key that middleware makes of a header.
func TestHeader(t *testing.T) {
	redis := redistest.Shared(t)
	for header, want := range map[string]string{
		"x-api-key=secret":             "header:X-Api-Key:2bb80d537b1da3e38bd30361aa855686",
		"Authorization=BEARER  secret": "authorization:aa05c62bbf3bb7c5ece3e34d91bf1757",
	} {
		kept := decode[map[string]any](t, 0, "peek", "-header", header, "-redis", redis.Addr())
		require.Equal(t, want, kept["key"])
	}
	for _, of := range [][]string{{"-redis", redis.Addr()}, {"-cluster", "127.0.0.1:1", "-timeout", "100ms"}} {
		var out, errs bytes.Buffer
		run(t.Context(), append([]string{"ping", "-json"}, of...), &out, &errs)
		require.NotContains(t, out.String(), "null", "a list without nodes is a list")
	}
}
