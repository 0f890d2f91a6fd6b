package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
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
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, n), algo.BucketedWindow(l, 10),
		algo.SlidingLog(l),
	} {
		ps = append(ps, closed(a.Kind().String(), a))
	}
	return ps
}

// Races calls with one key per algorithm from four processes of 64 callers each:
// exactly the limit passes. The test calls
// Races before anything else. open makes a child's store. start starts the
// servers and returns NAME=value, by which children find them.
func Races(t *testing.T, open func() backend.Store, start func() (env string)) {
	if _, ok := redistest.Child(); ok {
		race(t, open())
		return
	}
	passed := map[string]int{}
	lines := redistest.Processes(t, 4, t.Name(), start())
	for line := range strings.Lines(strings.Join(lines, "\n")) {
		if line == "\n" {
			continue // of a process that came too late for any unit
		}
		passed[strings.TrimSuffix(line, "\n")]++
	}
	for _, p := range every(raced) {
		require.Equal(t, raced, passed[p.Name], p.Name)
	}
}

// race is a child of Races. All children wait in Ready, so that none has used up
// the limit before the last begins. It reports each allowed call.
func race(t *testing.T, s backend.Store) {
	defer s.Close()
	redistest.Ready()
	for _, p := range every(raced) {
		Go(Callers, func(int) {
			for range 6 { // 4 · 64 · 6 calls pass the limit
				r := backend.Request{Op: backend.Take,
					Group: backend.Group{Key: p.Name, Policies: []backend.Policy{p}, Cost: 1}}
				d, err := layer.Ask(context.Background(), s, r)
				for errors.Is(err, backend.ErrUnavailable) { // a busy machine; nothing was counted
					d, err = layer.Ask(context.Background(), s, r)
				}
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					redistest.Result("%s", p.Name)
				}
			}
		})()
	}
}

const (
	flushers  = 8                      // processes
	flushKeys = 12                     // they lie on all nodes of a cluster
	between   = 100 * time.Millisecond // two flushes
)

// Servers is a Flush test's access to the servers.
type Servers struct {
	Env   string                           // NAME=value, by which children find them
	Nodes int                              // number of primaries
	Flush func() error                     // empties every node's script cache
	Stats func() map[string]redistest.Stat // of all nodes together
}

// Flush empties the script cache ten times per second under eight processes. No
// call may fail, no charge may be lost or doubled, and each process sends the
// script at most once per flush and node. In a child it runs the load.
func Flush(t *testing.T, open func() backend.Store, start func() Servers) {
	if _, ok := redistest.Child(); ok {
		work(t, open())
		return
	}
	servers := start()
	ctx, end := context.WithCancel(context.Background())
	var done int64
	flushed := Go(1, func(int) { done = flush(ctx, t, servers) })
	counted, used := int64(0), int64(0)
	for _, line := range redistest.Processes(t, flushers, t.Name(), servers.Env) {
		passed, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err, line)
		counted += passed
	}
	end()
	flushed()
	loads := servers.Stats()["script|load"].Calls
	s := open()
	defer s.Close()
	l := Limiter(t, s, Huge)
	for i := range flushKeys {
		used += Used(t, l, Key(0, i, flushKeys))
	}
	t.Logf("%d calls charged exactly, %d flushes of %d nodes, script sent %d times by %d processes",
		counted, done, servers.Nodes, loads, flushers)
	require.Equal(t, counted, used)
	// One more than the flushes: at the start no server has the script.
	require.LessOrEqual(t, loads, (done+1)*flushers*int64(servers.Nodes))
	require.Greater(t, loads, done/2, "the flushes took effect")
}

// flush flushes until the load has ended, and returns how often. It waits for the
// first call, before which no script is cached.
func flush(ctx context.Context, t *testing.T, s Servers) (done int64) {
	for s.Stats()["evalsha"].Calls == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	for ; ctx.Err() == nil; done++ {
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
		time.Sleep(between)
	}
	return done
}

// work takes from all keys for the time of some flushes, and reports how many
// calls were charged.
func work(t *testing.T, s backend.Store) {
	defer s.Close()
	l := Limiter(t, s, Huge)
	redistest.Ready()
	var passed atomic.Int64
	Loop(8, time.Duration(redistest.Steps(10, 30))*between, 0, func(_ context.Context, _, i int) {
		d, err := l.Allow(context.Background(), Key(0, i, flushKeys))
		if err == nil && d.Err == nil && d.Allowed {
			passed.Add(1)
		} else if !t.Failed() {
			t.Error(err, d.Err)
		}
	})
	redistest.Result("%d", passed.Load())
}

const (
	slotLease = time.Second
	slotKey   = "running"
)

func slotted(slots int) []headgate.Policy {
	return []headgate.Policy{
		closed("slots", algo.InFlight(int64(slots))),
		closed("rate", algo.FixedWindow(algo.Per(1_000_000, algo.MaxPeriod))),
	}
}

// Slots lets some processes, as 64, share fewer slots, as 20, and kills half of them in
// a call. Never are there more unexpired leases than slots. All are free one lease and a
// second after the last death, and the rate policy beside them counts the calls that
// passed. The test calls Slots before anything else; see Races.
func Slots(t *testing.T, holders, slots int, open func() backend.Store, start func() (env string)) {
	if i, ok := redistest.Child(); ok {
		hold(t, Limiter(t, open(), slotted(slots)...), i)
		return
	}
	lines := redistest.Processes(t, holders, t.Name(), start())
	died := time.Now()
	s := open()
	defer s.Close()
	l := Limiter(t, s, slotted(slots)...)
	free := false
	for !free && time.Since(died) < slotLease+time.Second {
		free = running(t, l)[0] == 0
	}
	require.True(t, free, "%v after the last death", time.Since(died))
	freed := time.Since(died)
	calls, unfinished := intervals(t, lines)
	require.Positive(t, unfinished)
	most := overlap(calls)
	t.Logf("%d calls of %d processes, %d killed in one; at most %d at once; all slots free after %v",
		len(calls), holders, unfinished, most, freed)
	require.LessOrEqual(t, most, slots)
	require.Greater(t, most, slots/2, "the processes contended")
	require.EqualValues(t, len(calls), running(t, l)[1], "a denial by the slots is charged to nobody")
	for range slots {
		_, d, err := l.Reserve(t.Context(), headgate.Call{Key: slotKey})
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
}

// running is what the policies count.
func running(t *testing.T, l *headgate.Limiter) (used [2]int64) {
	each := make([]headgate.State, 2)
	_, err := l.Peek(context.Background(), headgate.Call{Key: slotKey, Costs: []int64{0, 0}, Each: each})
	require.NoError(t, err)
	return [2]int64{each[0].Used, each[1].Used}
}

// hold is a child of Slots: it makes calls, and each odd one dies in a call.
func hold(t *testing.T, l *headgate.Limiter, child int) {
	redistest.Ready()
	ends := time.Now().Add(time.Duration(redistest.Steps(2, 20)) * time.Second)
	for time.Now().Before(ends) || child%2 == 1 {
		sent := time.Now()
		r, d, err := l.Reserve(t.Context(), headgate.Call{Key: slotKey, Lease: slotLease})
		require.NoError(t, err)
		require.NoError(t, d.Err)
		if !d.Allowed {
			time.Sleep(time.Duration(20+rand.IntN(40)) * time.Millisecond)
			continue
		}
		call(t, r, sent, child%2 == 1 && time.Now().After(ends.Add(-time.Second)))
	}
}

// call holds a slot for a while, now and then for longer than a lease. It reports a
// begin when the lease is surely there, and an end while it still is. Of a call that
// does not end the lease ran for at least its length.
func call(t *testing.T, r *headgate.Reservation, sent time.Time, dies bool) {
	begin := time.Now()
	ctx, release := r.Hold(t.Context())
	length := time.Duration(10+rand.IntN(150)) * time.Millisecond
	if rand.IntN(20) == 0 {
		length += slotLease
	}
	select {
	case <-time.After(length):
	case <-ctx.Done(): // the machine was too busy to extend in time: the slot is lost
	}
	end, held := time.Now(), ctx.Err() == nil
	if dies || !held {
		end = sent.Add(slotLease)
	}
	redistest.Result("%d %d %t", begin.UnixMicro(), end.UnixMicro(), held && !dies)
	if dies {
		redistest.Die()
	}
	release()
	if err := r.Commit(t.Context()); held {
		require.NoError(t, err)
	}
}

// interval is a part of a call's lease, in µs.
type interval struct{ begin, end int64 }

// intervals returns the calls, and how many of them did not end.
func intervals(t *testing.T, lines []string) (calls []interval, unfinished int) {
	for _, child := range lines {
		for line := range strings.Lines(child) {
			var c interval
			var ended bool
			_, err := fmt.Sscan(line, &c.begin, &c.end, &ended)
			require.NoError(t, err, line)
			calls = append(calls, c)
			if !ended {
				unfinished++
			}
		}
	}
	return calls, unfinished
}

// overlap returns the most intervals that hold one instant, which is where one begins.
// An interval does not hold its end.
func overlap(calls []interval) (most int) {
	for _, at := range calls {
		n := 0
		for _, c := range calls {
			if c.begin <= at.begin && at.begin < c.end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
