package standalone_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestKeysAreDeclared: the script names no key that it was not given, so a server that
// refuses others runs it. One key is derived: what the entries of a SlidingLog gave back.
func TestKeysAreDeclared(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	lines := monitored(t, server.Addr())
	store := standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	rate := algo.PerMinute(100)
	log := backend.Policy{Name: "log", Algorithm: algo.SlidingLog(rate)}
	lists := map[string][]backend.Policy{
		"a log":     {log},
		"two":       {{Name: "fixed", Algorithm: algo.FixedWindow(rate)}, log},
		"of a kind": {{Name: "packed", Algorithm: algo.CompactLog(rate)}, log, {Name: "other", Algorithm: algo.SlidingLog(rate), Shadow: true}},
		"slots":     {log, {Name: "running", Algorithm: algo.InFlight(50)}},
	}
	for name, list := range lists {
		eachOp(t, store, name, list)
	}
	require.NoError(t, client.Echo(context.Background(), "over").Err())
	given, derived := 0, 0
	for declared, line := []string(nil), ""; !strings.Contains(line, `"over"`); {
		line = <-lines
		words := word.FindAllString(line, -1)
		switch {
		case len(words) > 2 && strings.EqualFold(words[0], `"evalsha"`):
			n, err := strconv.Atoi(strings.Trim(words[2], `"`))
			require.NoError(t, err)
			declared = words[3 : 3+n]
			given++
		case strings.Contains(line, " lua] ") && len(words) > 1:
			require.Contains(t, declared, words[1], line)
			if strings.Contains(words[1], ":back") && slices.Contains([]string{`"hset"`, `"hmget"`}, strings.ToLower(words[0])) {
				derived++
			}
		}
	}
	require.Greater(t, given, 40)
	require.Greater(t, derived, 4, "no list gave back from a log")
}

// eachOp has a store do each operation that the list can have, on a key of its own.
func eachOp(t *testing.T, store backend.Store, key string, list []backend.Policy) {
	slots := slices.ContainsFunc(list, func(p backend.Policy) bool { return p.Algorithm.Kind() == algo.KindInFlight })
	ask := func(op backend.Op, cost int64, change func(*backend.Request)) {
		r := backend.Request{Op: op, Group: backend.Group{Key: key, Policies: list, Cost: cost}}
		if slots {
			r.Costs = slices.Repeat([]int64{cost}, len(list))
			r.Costs[len(list)-1] = 1
		}
		if change != nil {
			change(&r)
		}
		_, err := layer.Ask(context.Background(), store, r)
		require.NoError(t, err, "%s: %v", key, op)
	}
	lease := func(id byte, actual ...int64) func(*backend.Request) {
		return func(r *backend.Request) {
			r.Lease = &backend.Lease{ID: backend.LeaseID{id}, Length: time.Minute, Actual: actual}
			if r.Op.Held() {
				r.Cost, r.Costs = 0, nil
			}
		}
	}
	for id := range byte(3) {
		ask(backend.Reserve, 5, lease(id+1))
	}
	ask(backend.Extend, 0, lease(1))
	used := slices.Repeat([]int64{2}, len(list))
	if slots {
		used[len(list)-1] = 1
	}
	ask(backend.Settle, 0, lease(1, used...))
	ask(backend.Peek, 1, nil)
	ask(backend.Reserve, 4, lease(4))
	ask(backend.Settle, 0, lease(4, used...))
	if !slots {
		for _, op := range []backend.Op{backend.Take, backend.AtMost, backend.Record} {
			ask(op, 3, nil)
		}
		ask(backend.Borrow, 1, func(r *backend.Request) {
			r.Loan = &backend.Loan{ID: backend.LeaseID{9}, Seq: 1, Length: time.Second, Want: 10}
		})
		ask(backend.Take, 3, nil)
	}
	ask(backend.Settle, 0, lease(2))
	ask(backend.Reset, 0, nil)
}

// word is one argument of a command as MONITOR prints it.
var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// monitored returns the lines of a server's MONITOR.
func monitored(t *testing.T, addr string) <-chan string {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprint(c, "MONITOR\r\n")
	require.NoError(t, err)
	r := bufio.NewReaderSize(c, 1<<20)
	ok, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", ok)
	lines := make(chan string, 1<<12)
	go func() {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	return lines
}
