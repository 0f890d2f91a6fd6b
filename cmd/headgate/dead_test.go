package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// half is a cluster of which one primary is dead, without a replica.
type half struct {
	args   []string // of the command
	dead   string   // its address
	living []string // keys of the others
	lost   string   // a key of the dead one
	path   string
}

// TestDeadPrimary: while one primary gives no answer, every command serves what the others
// have, names it, and ends with status 1. A frozen one costs the timeout.
func TestDeadPrimary(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	store, err := cluster.Open(c.Addrs(), unhurried)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	victim, other := c.Primary(0), c.Primary(slot.Count-1)
	h := half{args: []string{"-redis", other.Addr(), "-timeout", "2s"}, dead: victim.Addr(), path: write(t)}
	one, spread := place{store: store}.limiter(t, "one"), place{store: store}.limiter(t, "spread")
	for i := 0; len(h.living) < 3 || h.lost == ""; i++ {
		switch key := fmt.Sprint("user:", i); {
		case c.Primary(slot.Of(slot.Tag(key, ""))) != victim:
			h.living = append(h.living, key)
		default:
			h.lost = key
		}
	}
	for _, key := range append(h.living, h.lost) {
		_, d, err := one.Reserve(t.Context(), headgate.Call{Key: key, Costs: []int64{7}})
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
	take(t, spread, "spread", 40, 1)
	take(t, spread, "full", 4, 250)
	c.Replica(victim).Kill()
	victim.Stop()
	require.Contains(t, h.run(t, "peek", h.living[0]), ": 7 units used now")
	require.Contains(t, h.run(t, "keys"), h.living[0]+"\t")
	require.Empty(t, h.run(t, "peek", h.lost, "-policies", h.path, "-plan", "one"))
	require.Contains(t, h.run(t, "leases", h.living[0]), h.living[0]+" has open leases: 1")
	_, stderr := output(t, 1, append(h.args, "leases", h.living[0])...)
	require.Regexp(t, regexp.QuoteMeta(h.dead)+": time: no answer in [0-9.]+s", stderr)
	h.looksAtFull(t)
	victim.Kill()
	h.args[3] = "10s" // what is refused at once costs no timeout, and the others may be slow
	h.looksAtFull(t)
	h.looks(t)
	h.resets(t)
}

// run runs a command that serves the living, and returns what it prints.
func (h half) run(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr := output(t, 1, append(args, h.args...)...)
	require.Contains(t, stderr, h.dead)
	require.NotRegexp(t, "counted|budget", stderr, "nobody counts here")
	for line := range strings.Lines(stderr) {
		require.True(t, strings.HasPrefix(line, "headgate: "), line)
	}
	return stdout
}

func (h half) looks(t *testing.T) {
	for _, key := range h.living {
		require.Contains(t, h.run(t, "peek", key), "fixed, FixedWindow of 24h0m0s: 7 units used now")
		require.Contains(t, h.run(t, "leases", key), key+" has open leases: 1")
		require.Contains(t, exec(t, 0, append(h.args, "peek", key, "-policies", h.path, "-plan", "one")...), "would pass")
		require.Contains(t, h.run(t, "keys"), key+"\theadgate:{"+key+"}\n")
	}
	require.Empty(t, h.run(t, "peek", h.lost), "another node may have it")
	require.Empty(t, h.run(t, "leases", h.lost))
	rest, notes := output(t, 0, append(h.args, "peek", h.living[0], "-policies", h.path, "-plan", "calls")...)
	require.Contains(t, rest, h.living[0]+" would pass", "its own node has an answer")
	require.Regexp(t, "(?m)^note: what else is stored of the key could not be read: .*"+regexp.QuoteMeta(h.dead), notes)
	require.Empty(t, h.run(t, "peek", h.lost, "-policies", h.path, "-plan", "one"))
	require.Contains(t, h.run(t, "peek", "spread"), "of 4 sub-keys")
	require.Contains(t, h.run(t, "peek", "spread", "-policies", h.path, "-plan", "spread"), "as far as its sub-keys gave an answer")

	var top topped
	require.NoError(t, json.Unmarshal([]byte(h.run(t, "top", "-every", "0", "-json", "-policies", h.path, "-plan", "one")), &top))
	require.Len(t, top.Fullest, len(h.living))
	require.Contains(t, strings.Join(top.Errors, "\n"), h.dead)
	h.looksAtSpread(t)
	ctx, interrupt := context.WithTimeout(t.Context(), 10*time.Second)
	defer interrupt()
	out, errs := &until{done: interrupt}, bytes.Buffer{}
	require.Zero(t, run(ctx, append(h.args, "top", "-every", "100ms", "-policies", h.path, "-plan", "one"), out, &errs), errs.String())
	require.Contains(t, errs.String(), "note: "+h.dead)
	require.Greater(t, strings.Count(out.String(), h.living[0]), 1, "refreshed")
}

// looksAtSpread: what the living sub-keys count is known, and the others count as nothing.
func (h half) looksAtSpread(t *testing.T) {
	var peeked looked
	of := []string{"-policies", h.path, "-plan", "spread"}
	require.NoError(t, json.Unmarshal([]byte(h.run(t, append(of, "peek", "spread", "-json")...)), &peeked))
	require.Greater(t, peeked.Policies[0].Used, int64(0))
	require.Less(t, peeked.Policies[0].Used, int64(40))
	top := append(of, "top", "-every", "0")
	var all topped
	require.NoError(t, json.Unmarshal([]byte(h.run(t, append(top, "-json")...)), &all))
	at := slices.IndexFunc(all.Fullest, func(f full) bool { return f.Key == "spread" })
	require.GreaterOrEqual(t, at, 0)
	require.True(t, all.Fullest[at].Known == backend.Estimated.String())
	require.Equal(t, peeked.Policies[0].Used, all.Fullest[at].Used)
	require.InDelta(t, float64(peeked.Policies[0].Used)/10, all.Fullest[at].Percent, 1e-9)
	require.Contains(t, h.run(t, top...), "at least ")

	s := open(t, h.args) // a refresh that has not listed the dead node's keys names it too
	require.NoError(t, s.connect(t.Context()))
	err := all.measure(t.Context(), s.store, place{store: s.store}.limiter(t, "spread"), map[string]bool{"spread": true}, 1)
	require.ErrorContains(t, err, h.dead)
}

// looksAtFull: the count of the living sub-keys is known also if none of them has room.
func (h half) looksAtFull(t *testing.T) {
	args := []string{"peek", "full", "-policies", h.path, "-plan", "spread"}
	text := h.run(t, args...)
	require.Contains(t, text, "full would get the answer of its failure mode: no sub-key that gave an answer has room\n")
	require.Regexp(t, `\nfixed \(4 sub-keys\) .* 1000 +(250|500|750) +0 +- `, text)
	var peeked looked
	require.NoError(t, json.Unmarshal([]byte(h.run(t, append(args, "-json")...)), &peeked))
	require.True(t, peeked.Undecided && peeked.estimated() && !peeked.Allowed)
	require.Equal(t, int64(0), peeked.Policies[0].Remaining)
}

// until calls done, as an interrupt does, after a few refreshes of top.
type until struct {
	bytes.Buffer
	done func()
}

func (u *until) Write(b []byte) (int, error) {
	if strings.Count(u.String(), "FULL") > 2 {
		u.done()
	}
	return u.Buffer.Write(b)
}

func (h half) resets(t *testing.T) {
	for _, key := range h.living {
		require.Contains(t, h.run(t, "reset", key), key+" was reset in part; counts deleted: 1\n")
	}
	require.Empty(t, h.run(t, "reset", h.lost))
	require.Contains(t, h.run(t, "reset", "spread"), "spread was reset in part; counts deleted: 3\n")
	require.Empty(t, h.run(t, "peek", h.living[0]), "it was reset")
	require.Contains(t, h.run(t, "reset", "spread", "-policies", h.path, "-plan", "spread"), "")
}

// TestDeadServers: where nobody answers, a command ends within its timeout, however it finds
// its server.
func TestDeadServers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, addr := range []string{silent.Addr().String(), "127.0.0.1:1"} {
		for _, of := range [][]string{nil, {"-sentinel", "mymaster"}, {"-cluster", addr}} {
			for _, args := range [][]string{{"ping"}, {"reset", "k"}, {"top", "-policies", write(t)}} {
				args = append(args, "-timeout", "300ms")
				if len(of) == 0 || of[0] != "-cluster" {
					args = append(args, "-redis", addr)
				}
				args = append(args, of...)
				var out string
				var took time.Duration
				for range 3 { // a busy machine is late by chance, a command that waits twice is always
					begin := time.Now()
					out = exec(t, 1, args...)
					if took = time.Since(begin); took < 500*time.Millisecond {
						break
					}
				}
				require.Less(t, took, 500*time.Millisecond, "%q", args)
				require.Contains(t, out, addr)
				require.NotRegexp(t, "counted|budget", out)
			}
		}
	}
}
