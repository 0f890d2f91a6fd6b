package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// raced is the limit that the processes run at.
const raced = 1000

// every is each algorithm with a limit of n for a period so long that no
// test outlasts it.
func every(n int64) []backend.Policy {
	l := algo.Per(n, algo.MaxPeriod)
	var ps []backend.Policy
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, n), algo.BucketedWindow(l, 10), algo.SlidingLog(l),
	} {
		ps = append(ps, closed(a.Kind().String(), a))
	}
	return ps
}

// Races calls with one key per algorithm from four processes of 64 callers each:
// exactly the limit passes, and the oracle accepts the instants. The test calls
// Races before anything else. open makes a child's store. start starts the
// servers and returns NAME=value, by which children find them.
func Races(t *testing.T, open func() backend.Store, start func() (env string)) {
	if _, ok := redistest.Child(); ok {
		race(t, open())
		return
	}
	passed, oracles := map[string]int{}, map[string]*oracle.Oracle{}
	for _, p := range every(raced) {
		oracles[p.Name] = oracle.New(p.Algorithm)
	}
	for _, lines := range redistest.Processes(t, 4, t.Name(), start()) {
		for _, line := range strings.Split(lines, "\n") {
			var name string
			var at int64
			_, err := fmt.Sscan(line, &name, &at)
			require.NoError(t, err, line)
			passed[name]++
			oracles[name].Add(at, 1)
		}
	}
	for _, p := range every(raced) {
		require.Equal(t, raced, passed[p.Name], p.Name)
		require.NoError(t, oracles[p.Name].Check())
	}
}

func race(t *testing.T, s backend.Store) {
	defer s.Close()
	redistest.Ready()
	for _, p := range every(raced) {
		Go(Callers, func(int) {
			for range 6 { // 4 · 64 · 6 calls pass the limit
				run(t, s, p)
			}
		})()
	}
}

func run(t *testing.T, s backend.Store, p backend.Policy) {
	var c backend.Receipt
	take := func() (backend.Decision, error) {
		return layer.Ask(context.Background(), s, backend.Request{Op: backend.Take,
			Group: backend.Group{Key: p.Name, Policies: []backend.Policy{p}, Cost: 1, Receipt: &c}})
	}
	d, err := take()
	for errors.Is(err, backend.ErrUnavailable) { // a busy machine; nothing was counted
		d, err = take()
	}
	if err != nil {
		t.Error(err)
	}
	if d.Allowed {
		redistest.Result("%s %d", p.Name, c.At[0])
	}
}
