package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
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
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte(combined), 0o600))
	try := []string{"replay", "-policies", path, "-log", log}
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
		"policies": {append(peek, "-policies", path), append(try, "-policies", path), {"peek", "k", "-policies", "none.yaml"}, {"reset", "k", "-policies", t.TempDir()}, {"top", "-policies", "help_test.go"}, {"top"}},
		"plan":     {append(peek, "-plan", "none"), append(try, "-plan", "none"), {"peek", "k", "-plan", "one"}},
		"tenant":   {append(peek, "-tenant", "acme", "-plan", "one"), {"reset", "k", "-tenant", "acme"}},
		"of":       {append(peek, "-of", "x"), append(peek, "-of", "model="), append(top, "-of", "none=x"), {"peek", "k", "-of", "model=large"}},
		"cost":     {append(peek, "-cost", "-1"), append(peek, "-cost", "x"), append(peek, "-cost", "1,2"), append(peek, "-cost", ""), append(peek, "-cost", "9999999999999999999"), append(try, "-cost", "-1"), append(try, "-cost", "none=1"), append(try, "-cost", "9999999999999999999")},
		"header":   {{"peek", "-header", "x"}, {"peek", "-header", "x="}, {"peek", "k", "-header", "x=y"}, {"ping", "-header", "x=y"}},
		"n":        {append(top, "-n", "0"), append(top, "-n", "-1"), append(top, "-n", "x"), append(try, "-n", "0")},
		"page":     {{"top", "-page", "localhost:8080"}, append(top, "-page", "http://localhost:8080/page/"), {"top", "-page", "%"}},
		"sample":   {append(top, "-sample", "0"), append(top, "-sample", "-1")},
		"every":    {append(top, "-every", "-1s"), append(top, "-every", "99ms"), append(top, "-every", "1ns"), append(top, "-every", "x")},

		"against":  {append(try, "-against", path, "-against", path), append(try, "-against", "none.yaml"), append(try, "-against", "help_test.go")},
		"log":      {append(try, "-log", "none"), append(try, "-log", "-", "-log", "-"), {"replay", "-log", "none"}},
		"format":   {append(try, "-format", "xml"), append(try, "-format", "json")},
		"at":       {append(try, "-at")},
		"duration": {append(try, "-duration", ":s"), append(try, "-duration", "a:h")},
		"zone":     {append(try, "-zone", "Nowhere"), append(try, "-zone", "Local")},
		"within":   {append(try, "-within", "minute"), append(try, "-within", "")},
		"unsorted": {append(try, "-unsorted", "-1s"), append(try, "-unsorted", "25h")},
		"per":      {append(try, "-per", "x"), append(try, "-per", "x="), append(try, "-per", "=x"), append(try, "-per", "none=path"), {"advise", log, "-per", "1"}, {"advise", log, "-per", "1ns"}},
		"enforce":  {append(try, "-enforce=perhaps")},
		"hash":     {append(try, "-hash=perhaps")},
		"max-keys": {append(try, "-max-keys", "0"), append(try, "-max-keys", "9999999999")},

		"postgres": {{"ping", "-postgres", "redis://host"}, {"ping", "-postgres", "postgres://user@host:x/"}},
		"schema":   {{"migrate", "-sql", "-schema", "A"}},
		"sql":      {{"migrate", "-sql=perhaps"}},
		"logged":   {{"migrate", "-sql", "-logged=perhaps"}},

		"html": {append(try, "-html", path), append(try, "-html", t.TempDir()), append(try, "-html", filepath.Join(log, "x"))},
		"deny": {{"advise", log, "-deny", "1"}, {"advise", log, "-deny", "100%"}, {"advise", log, "-deny", "1%", "-keys", "1"}},
		"keys": {{"advise", log, "-keys", "-1"}, {"advise", log, "-keys", "x"}, {"advise", log, "-keys", "1", "-deny", "1%"}},

		"dimensions": {{"check", path, "-dimensions", ""}, {"check", path, "-dimensions", " ,"}},
	}
	new(session).flags(io.Discard).VisitAll(func(f *flag.Flag) {
		require.NotEmpty(t, wrong[f.Name], f.Name)
		for _, args := range wrong[f.Name] {
			own := slices.Contains(commands[args[0]].uses, "redis")
			if own && !slices.Contains(args, "-redis") && !slices.Contains(args, "-cluster") {
				args = append(slices.Clone(args), "-redis", "127.0.0.1:1")
			}
			out, errs := output(t, 2, args...)
			require.Empty(t, out, "%q", args)
			if f.Name != "policies" && f.Name != "against" && f.Name != "log" { // whose error has the file's name
				require.Contains(t, errs, f.Name, "%q", args)
			}
		}
	})
}

// TestFlagsOfOtherCommands: a command accepts no flag that it does not have.
func TestFlagsOfOtherCommands(t *testing.T) {
	new(session).flags(io.Discard).VisitAll(func(f *flag.Flag) {
		value := "1"
		switch f.Name {
		case "timeout", "every", "unsorted":
			value = "1s"
		}
		for name, c := range commands {
			if !slices.Contains(c.uses, f.Name) {
				says := fmt.Sprintf("headgate: %[1]s has no flag -%[2]s\nheadgate help %[1]s lists its flags\n", name, f.Name)
				require.Equal(t, says, exec(t, 2, name, "x", "-"+f.Name+"="+value))
			}
		}
	})
	require.Contains(t, exec(t, 2, "advise", "x", "-redis", "a:1", "-html", "y"), "advise has no flag -html, -redis\n")
	require.Contains(t, exec(t, 2, "nosuch", "x", "-header", "a=b"), "unknown command")
}

// TestHints: an error of usage names the help of the command.
func TestHints(t *testing.T) {
	log := logged(t, perMinute, combined)[4]
	for _, args := range [][]string{{"advise", log, "-deny", "1"}, {"advise", log, "-per", "1"}, {"advise", log, "-keys", "x"}, {"advise", "-nosuch"}, {"peek"}, {"peek", "k", "-cost", "2"}} {
		require.Contains(t, exec(t, 2, args...), "\nheadgate help "+args[0]+" lists its flags\n", "%q", args)
	}
	wrong := logged(t, "policies: {a: {}}", combined)
	require.NotContains(t, exec(t, 2, wrong...), "lists its flags", "the file is wrong, not the command line")
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
