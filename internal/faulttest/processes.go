package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// raced is the limit of Races: below the number of calls, so that they contend for
// the last units of it.
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

// race is a child of Races. All children wait in Ready, so that none has used up
// the limit before the last begins.
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

// run makes one call and reports the server's instant of an allowed one. It calls
// the store itself: a limiter does not return the instant.
func run(t *testing.T, s backend.Store, p backend.Policy) {
	var c backend.Receipt
	r := backend.Request{Op: backend.Take,
		Group: backend.Group{Key: p.Name, Policies: []backend.Policy{p}, Cost: 1, Receipt: &c}}
	d, err := layer.Ask(context.Background(), s, r)
	for errors.Is(err, backend.ErrUnavailable) { // a busy machine; nothing was counted
		d, err = layer.Ask(context.Background(), s, r)
	}
	if err != nil {
		t.Error(err)
	}
	if d.Allowed {
		redistest.Result("%s %d", p.Name, c.At[0])
	}
}

const (
	flushers  = 8 // processes
	flushKeys = 12
	between   = 100 * time.Millisecond // two flushes
	// Keys on the servers by which the parent and the children signal.
	workingKey, stopKey = "working", "stop"
)

// Servers is a Flush test's access to the servers.
type Servers struct {
	Env    string                           // NAME=value, by which children find them
	Nodes  int                              // number of primaries
	Client redis.UniversalClient            // not through a Network
	Flush  func() error                     // empties every node's script cache
	Stats  func() map[string]redistest.Stat // of all nodes together
}

// Flush empties the script cache ten times per second under eight processes. No
// call may fail, no charge may be lost or doubled, and each process sends the
// script at most once per flush and node. In a child it runs the load.
func Flush(t *testing.T, open func() (backend.Store, redis.UniversalClient), start func() Servers) {
	if _, ok := redistest.Child(); ok {
		s, c := open()
		defer s.Close()
		defer c.Close()
		work(t, Limiter(t, s, Huge), c)
		return
	}
	servers := start()
	var done int64
	flushed := Go(1, func(int) { done = flush(t, servers) })
	counted := int64(0)
	for _, line := range redistest.Processes(t, flushers, t.Name(), servers.Env) {
		passed, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err, line)
		counted += passed
	}
	flushed()
	loads := servers.Stats()["script|load"].Calls
	used := int64(0)
	store, c := open()
	defer store.Close()
	defer c.Close()
	for i := range flushKeys {
		used += Used(t, Limiter(t, store, Huge), flushKey(i))
	}
	t.Logf("%d calls charged exactly, %d flushes of %d nodes, script sent %d times by %d processes",
		counted, done, servers.Nodes, loads, flushers)
	require.Equal(t, counted, used)
	// One more than the flushes: at the start no server has the script.
	require.LessOrEqual(t, loads, (done+1)*flushers*int64(servers.Nodes))
	require.Greater(t, loads, done/2, "the flushes took effect")
}

// flush waits for the load, flushes under it, then ends it. It returns the number
// of flushes.
func flush(t *testing.T, s Servers) (done int64) {
	ctx := context.Background()
	// A flush before the first call would not meet a cached script.
	for s.Client.Exists(ctx, workingKey).Val() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	tick := time.NewTicker(between)
	defer tick.Stop()
	for ; done < int64(redistest.Steps(10, 30)); done++ {
		<-tick.C
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Client.Set(ctx, stopKey, 1, time.Hour).Err(); err != nil {
		t.Error(err)
	}
	return done
}

// flushKey returns one of the keys, which lie on all nodes of a cluster.
func flushKey(i int) string { return Key(0, i, flushKeys) }

// work takes from all keys until the parent has flushed enough, and reports how
// many calls were charged.
func work(t *testing.T, l *headgate.Limiter, c redis.UniversalClient) {
	redistest.Ready()
	c.Set(context.Background(), workingKey, 1, time.Hour)
	var passed atomic.Int64
	var stop atomic.Bool
	wait := Go(8, func(int) {
		for i := 0; !stop.Load(); i++ {
			d, err := l.Allow(context.Background(), flushKey(i))
			if err != nil || d.Err != nil || !d.Allowed {
				t.Error(err, d.Err)
				return
			}
			passed.Add(1)
		}
	})
	for c.Exists(context.Background(), stopKey).Val() == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	stop.Store(true)
	wait()
	redistest.Result("%d", passed.Load())
}
