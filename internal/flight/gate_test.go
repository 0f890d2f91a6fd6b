package flight_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/flight"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate is a hook that holds scripts while it is shut.
type gate struct {
	mu struct {
		sync.Mutex
		shut chan struct{}
		held int
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.shut, g.mu.held = make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.mu.shut)
	g.mu.shut = nil
}

func (g *gate) holds(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.held >= n
}

func (g *gate) pass(name string) {
	if name != "evalsha" {
		return
	}
	g.mu.Lock()
	shut := g.mu.shut
	g.mu.held++
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(cmd.Name())
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass(cmds[0].Name())
		return next(ctx, cmds)
	}
}

// gated returns a queue behind a gate: of a server, or as one of a cluster's
// node.
func gated(t *testing.T, apart bool) (*flight.Queue, *gate) {
	g := &gate{}
	c := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = 40 })
	c.AddHook(g)
	const budget = 10 * time.Second
	s := script.NewServer(c, "node", script.Settings{Prefix: script.DefaultPrefix, Budget: budget, Hub: &backend.Hub{}})
	var ways script.Ways
	if apart {
		ways = s
	}
	return flight.New(s, ways, budget, false), g
}

// fill holds as many flights as may be out: what comes now waits, until the
// gate opens.
func fill(t *testing.T, q *flight.Queue, g *gate) (landed func()) {
	_, err := q.Ask(context.Background(), "warm", 0, take("warm"))
	require.NoError(t, err)
	q.Note(1, 1, 50*time.Microsecond) // near, however long trips take on a busy machine: no more places while they are held
	g.shut()
	var flights sync.WaitGroup
	for i := range flight.Out {
		flights.Add(1)
		go func() {
			defer flights.Done()
			k := fmt.Sprint("held", i)
			_, _ = q.Ask(context.Background(), k, 0, take(k))
		}()
	}
	require.Eventually(t, func() bool { return g.holds(flight.Out) }, 5*time.Second, time.Millisecond)
	return flights.Wait
}

func both(t *testing.T, run func(t *testing.T, apart bool)) {
	t.Run("Joint", func(t *testing.T) { run(t, false) })
	t.Run("Apart", func(t *testing.T) { run(t, true) })
}

func waits(t *testing.T, q *flight.Queue, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return q.Waiting() == n }, 5*time.Second, time.Millisecond)
}

// TestWhoLeavesHarmsNobody: the first of a flight to have come is gone when it
// leaves.
func TestWhoLeavesHarmsNobody(t *testing.T) {
	both(t, func(t *testing.T, apart bool) {
		q, g := gated(t, apart)
		landed := fill(t, q, g)
		ctx, leave := context.WithCancel(context.Background())
		gone, stay := make(chan error, 1), make(chan error, 50)
		go func() {
			_, err := q.Ask(ctx, "gone", 0, take("gone"))
			gone <- err
		}()
		waits(t, q, 1)
		for i := range cap(stay) {
			go func() {
				k := fmt.Sprint("stay", i)
				_, err := q.Ask(context.Background(), k, 0, take(k))
				stay <- err
			}()
		}
		waits(t, q, 1+cap(stay))
		leave()
		require.ErrorIs(t, <-gone, context.Canceled)
		g.open()
		landed()
		for range cap(stay) {
			require.NoError(t, <-stay)
		}
	})
}

// TestWithdrawnReset does not happen.
func TestWithdrawnReset(t *testing.T) {
	both(t, func(t *testing.T, apart bool) {
		q, g := gated(t, apart)
		for range 5 {
			_, err := q.Ask(context.Background(), "k", 0, take("k"))
			require.NoError(t, err)
		}
		landed := fill(t, q, g)
		other, gone := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := q.Ask(context.Background(), "o", 0, take("o"))
			other <- err
		}()
		ctx, leave := context.WithCancel(context.Background())
		go func() {
			r := take("k")
			r.Op = backend.Reset
			_, err := q.Ask(ctx, "k", 0, r)
			gone <- err
		}()
		waits(t, q, 2)
		leave()
		require.ErrorIs(t, <-gone, context.Canceled)
		g.open()
		landed()
		require.NoError(t, <-other)
		d, err := q.Ask(context.Background(), "k", 0, take("k"))
		require.NoError(t, err)
		require.EqualValues(t, 6, d.Used)
	})
}

// TestNobodyOvertakes: while calls wait, one that comes waits behind them,
// though a place is free; and none waits then.
func TestNobodyOvertakes(t *testing.T) {
	q, g := gated(t, false)
	landed := fill(t, q, g)
	used := [2]chan int64{make(chan int64, 1), make(chan int64, 1)}
	for i := range used {
		if i == 1 {
			q.Free() // as when a flight has landed that did not see who came meanwhile
		}
		go func() {
			d, err := q.Ask(context.Background(), "k", 0, take("k"))
			assert.NoError(t, err)
			used[i] <- d.Used
		}()
		if i == 0 {
			waits(t, q, 1)
		}
	}
	require.Eventually(t, func() bool { return g.holds(flight.Out + 1) }, 5*time.Second, time.Millisecond)
	require.Zero(t, q.Waiting(), "both are on the flight that has left")
	g.open()
	landed()
	require.EqualValues(t, 1, <-used[0])
	require.EqualValues(t, 2, <-used[1])
}

// TestGroups: calls of one key that ask for one thing by one list of policies
// are one group, whatever comes between them.
func TestGroups(t *testing.T) {
	const each = 5
	q, g := gated(t, false)
	landed := fill(t, q, g)
	others := []backend.Policy{{Name: "o", Algorithm: ps[0].Algorithm, OnFailure: backend.FailClosed}}
	asks := []backend.Request{*take("k"), *take("k"), *take("k")}
	asks[1].Policies = others
	asks[2].Op = backend.Peek
	var running sync.WaitGroup
	for i := range each * len(asks) {
		r, last := asks[i%len(asks)], i/len(asks) == each-1
		running.Add(1)
		go func() {
			defer running.Done()
			d, err := q.Ask(context.Background(), "k", 0, &r)
			assert.NoError(t, err)
			assert.Equal(t, r.Policies[0].Name, d.Policy)
			if last && r.Op == backend.Take {
				assert.EqualValues(t, each, d.Used)
			}
		}()
		waits(t, q, i+1)
	}
	require.Equal(t, len(asks), q.Gathered())
	g.open()
	landed()
	running.Wait()
}

// distant is a client whose server is so far away.
type distant struct {
	script.Client
	away time.Duration
}

func (d distant) Process(ctx context.Context, cmd redis.Cmder) error {
	time.Sleep(d.away)
	return d.Client.Process(ctx, cmd)
}

// TestStayingIsNoTrip: calls that were never sent don't make a far server near.
func TestStayingIsNoTrip(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	for range 100 {
		q.Note(5, 1, 5*time.Millisecond)
	}
	require.Equal(t, flight.Afar, q.Limit())
	q.Late(5)
	require.Equal(t, flight.Afar, q.Limit())
}

// TestHurry: where others compute all the time, flights don't wait for them.
func TestHurry(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), 10*time.Second)
	var over atomic.Bool
	var running sync.WaitGroup
	computing := 4 * runtime.GOMAXPROCS(0)
	for i := range computing + 8*flight.Out {
		running.Add(1)
		go func() {
			defer running.Done()
			for !over.Load() {
				if i >= computing {
					_, _ = q.Ask(context.Background(), "k", 0, take("k"))
				}
			}
		}()
	}
	require.Eventually(t, q.Hurries, 20*time.Second, time.Millisecond)
	over.Store(true)
	running.Wait()
}

// TestHurriesLonger: each long turn of the run queue soon after the last keeps
// flights from waiting for one for twice as long, up to a second.
func TestHurriesLonger(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	now := time.Minute
	for _, want := range []time.Duration{30, 60, 120, 240, 480, 960, 1000, 1000} {
		for range 3 { // of one stall
			require.Equal(t, want*time.Millisecond, q.Turned(now, now+flight.Stall))
		}
		now += flight.Stall + want*time.Millisecond
	}
}

// TestHurriesBriefly: a stall that others don't follow soon costs little, and a
// short turn among many long ones changes little.
func TestHurriesBriefly(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	now := time.Minute
	long := func(want time.Duration) {
		t.Helper()
		require.Equal(t, want*time.Millisecond, q.Turned(now, now+flight.Stall))
		now += flight.Stall + want*time.Millisecond
	}
	short := func() { require.Zero(t, q.Turned(now, now+time.Microsecond)) }
	for range 2 {
		for _, want := range []time.Duration{30, 60, 120, 240, 480, 960, 1000} {
			long(want)
		}
		short()
		long(1000)
		for range 7 {
			short()
		}
	}
	long(30)
	long(60)
	now += 2 * time.Second
	long(30)
}
