package standalone_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// every is each algorithm with a limit of n for a period so long that no
// test outlasts it.
func every(n int64) []backend.Policy {
	l := algo.Per(n, algo.MaxPeriod)
	var ps []backend.Policy
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, n), algo.BucketedWindow(l, 10), algo.SlidingLog(l),
	} {
		ps = append(ps, backend.Policy{Name: a.Kind().String(), Algorithm: a, OnFailure: backend.FailClosed})
	}
	return ps
}

// patient is for tests that keep both cores busy: the budget is not their
// subject.
var patient = &standalone.Options{Budget: 20 * time.Second}

// TestRaces lets four processes of 64 callers run at one key at once: exactly
// the limit passes.
func TestRaces(t *testing.T) {
	const limit, processes = 1000, 4
	if _, ok := redistest.Child(); ok {
		race(t, limit)
		return
	}
	server := redistest.Start(t)
	passed, oracles := map[string]int{}, map[string]*oracle.Oracle{}
	policies := every(limit)
	for _, p := range policies {
		oracles[p.Name] = oracle.New(p.Algorithm)
	}
	for _, lines := range redistest.Processes(t, processes, t.Name(), "ADDR="+server.Addr()) {
		for _, line := range strings.Split(lines, "\n") {
			var name string
			var at int64
			_, err := fmt.Sscan(line, &name, &at)
			require.NoError(t, err, line)
			passed[name]++
			oracles[name].Add(at, 1)
		}
	}
	for _, p := range policies {
		require.Equal(t, limit, passed[p.Name], p.Name)
		require.NoError(t, oracles[p.Name].Check())
	}
	server.NoImmortals(t, "")
}

func race(t *testing.T, limit int64) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("ADDR")})
	defer client.Close()
	s := standalone.New(client, patient)
	redistest.Ready()
	for _, p := range every(limit) {
		var running sync.WaitGroup
		for range callers {
			running.Add(1)
			go func() {
				defer running.Done()
				for range 6 {
					var c backend.Charge
					d, err := s.Do(context.Background(), backend.Request{Op: backend.Take, Last: true,
						Group: backend.Group{Key: p.Name, Policies: []backend.Policy{p}, Cost: 1, Charge: &c}})
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						redistest.Result("%s %d", p.Name, c.At)
					}
				}
			}()
		}
		running.Wait()
	}
}

// TestOneLoadForAll: after a flush everybody hears NOSCRIPT at once, and one
// of them loads the script for all.
func TestOneLoadForAll(t *testing.T) {
	const rounds = 50
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.PoolSize = callers })
	l := limiter(t, client, patient, huge)
	for range rounds {
		require.NoError(t, client.ScriptFlush(context.Background()).Err())
		var running sync.WaitGroup
		for range callers {
			running.Add(1)
			go func() {
				defer running.Done()
				if d, err := l.Allow(context.Background(), "key"); err != nil || d.Err != nil {
					t.Error(err, d.Err)
				}
			}()
		}
		running.Wait()
	}
	require.EqualValues(t, rounds, server.CommandStats(t)["script|load"].Calls)
	require.EqualValues(t, rounds*callers, peek(t, l, "key"))
}

// TestScriptFlush empties the script cache ten times a second under eight
// processes: no caller may notice, no charge may be lost or doubled, and each
// process sends the script's bytes once a flush.
func TestScriptFlush(t *testing.T) {
	const processes, flushes = 8, 30
	if i, ok := redistest.Child(); ok {
		flushed(t, i)
		return
	}
	server := redistest.Start(t)
	client := server.Client(t)
	stop := make(chan struct{})
	var done atomic.Int64
	go func() {
		defer close(stop)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if client.Exists(context.Background(), "stop").Val() == 1 {
				return
			}
			client.ScriptFlush(context.Background())
			if done.Add(1) == flushes {
				client.Set(context.Background(), "stop", 1, time.Hour)
			}
		}
	}()
	counted := int64(0)
	for _, line := range redistest.Processes(t, processes, t.Name(), "ADDR="+server.Addr()) {
		var passed int64
		_, err := fmt.Sscan(line, &passed)
		require.NoError(t, err, line)
		counted += passed
	}
	<-stop
	used := peek(t, limiter(t, client, patient, huge), "key")
	loads := server.CommandStats(t)["script|load"].Calls
	t.Logf("%d calls charged exactly, %d flushes, script sent %d times by %d processes", counted, done.Load(), loads, processes)
	require.Equal(t, counted, used)
	require.LessOrEqual(t, loads, (done.Load()+1)*processes)
	require.Greater(t, loads, done.Load()/2, "the flushes were noticed")
}

var huge = headgate.Policy{Name: "huge", Algorithm: algo.TokenBucket(algo.Per(1, algo.MaxPeriod), algo.MaxLimit), OnFailure: headgate.FailClosed}

func flushed(t *testing.T, child int) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("ADDR")})
	defer client.Close()
	l := limiter(t, client, patient, huge)
	redistest.Ready()
	var passed atomic.Int64
	var stop atomic.Bool
	var running sync.WaitGroup
	for range 8 {
		running.Add(1)
		go func() {
			defer running.Done()
			for !stop.Load() {
				d, err := l.Allow(context.Background(), "key")
				if err != nil || d.Err != nil || !d.Allowed {
					t.Error(child, err, d.Err)
					return
				}
				passed.Add(1)
			}
		}()
	}
	for client.Exists(context.Background(), "stop").Val() == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	stop.Store(true)
	running.Wait()
	redistest.Result("%d", passed.Load())
}
