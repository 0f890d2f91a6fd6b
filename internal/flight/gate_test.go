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

// distant is a client whose server is so far away.
type distant struct {
	script.Client
	away time.Duration
}

func (d distant) Process(ctx context.Context, cmd redis.Cmder) error {
	time.Sleep(d.away)
	return d.Client.Process(ctx, cmd)
}

// TestCrowds: where flights are full and follow each other quickly fewer are
// out, but not where the server is far away.
func TestCrowds(t *testing.T) {
	server := redistest.Start(t)
	near, far := queue(server.Client(t), 20*time.Second), queue(distant{server.Client(t), 2 * time.Millisecond}, 20*time.Second)
	for _, q := range []*flight.Queue{near, far} {
		var over atomic.Bool
		var crowd sync.WaitGroup
		for range 24 {
			crowd.Add(1)
			go func() {
				defer crowd.Done()
				for !over.Load() {
					_, _ = q.Ask(context.Background(), "k", 0, take("k"))
				}
			}()
		}
		if q == near {
			require.Eventually(t, func() bool { return q.Limit() < flight.Out }, 10*time.Second, time.Millisecond)
		} else {
			time.Sleep(100 * time.Millisecond) // until it is known
			require.Never(t, func() bool { return q.Limit() < flight.Out }, 200*time.Millisecond, time.Millisecond)
		}
		over.Store(true)
		crowd.Wait()
	}
}

// TestPairs: where flights carry several calls of each key to a server beside
// us, two are out at once: it has little to do for them.
func TestPairs(t *testing.T) {
	const beside, away, far = 100 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond
	server := redistest.Start(t)
	for _, test := range []struct {
		about         string
		calls, groups int
		took          time.Duration
		out           int
	}{
		{"many calls of one key", 100, 1, beside, 2},
		{"several calls of one key", 8, 1, beside, 2},
		{"several calls of each key", 100, 20, beside, 2},
		{"a call or two of each key", 100, 50, beside, 3},
		{"many calls of one key, over a link", 100, 1, away, 3},
		{"many calls of one key, far away", 100, 1, far, 3},
		{"a call or two", 2, 1, beside, flight.Out},
	} {
		q := queue(server.Client(t), time.Second)
		for range 100 {
			q.Note(test.calls, test.groups, test.took)
		}
		require.Equal(t, test.out, q.Limit(), test.about)
		for range 100 {
			q.Note(1, 1, beside)
		}
		require.Equal(t, flight.Out, q.Limit(), "%s, and then one at a time", test.about)
	}
}

// TestOthersKeepItBusy: where round trips take longer than their link and what
// they carry can explain, one is out, also of calls that fly alone.
func TestOthersKeepItBusy(t *testing.T) {
	const us = time.Microsecond
	server := redistest.Start(t)
	for _, test := range []struct {
		about         string
		link          time.Duration
		calls, groups int
		took          time.Duration
		out           int
	}{
		{"several calls of one key", 30 * us, 5, 1, 600 * us, 1},
		{"one call at a time", 30 * us, 1, 1, 600 * us, 1},
		{"several keys", 30 * us, 5, 5, 600 * us, 1},
		{"as many keys as take so long", 30 * us, 10, 10, 600 * us, 3},
		{"not much longer than the link", 30 * us, 5, 1, 250 * us, 2},
		{"over a link", 600 * us, 5, 1, 700 * us, 3},
		{"far away", 2000 * us, 5, 1, 3000 * us, flight.Out},
	} {
		q := queue(server.Client(t), time.Second)
		q.Note(1, 1, test.link)
		for range 100 {
			q.Note(test.calls, test.groups, test.took)
		}
		require.Equal(t, test.out, q.Limit(), test.about)
		for range 100 {
			q.Note(1, 1, test.link)
		}
		require.Equal(t, flight.Out, q.Limit(), "%s, and then at leisure", test.about)
	}
}

// TestALongFlightHoldsNobodyUp, though no other should be out.
func TestALongFlightHoldsNobodyUp(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	q.Note(1, 1, 30*time.Microsecond)
	for range 100 {
		q.Note(5, 1, time.Millisecond)
	}
	require.Equal(t, 1, q.Limit())
	require.False(t, q.Room(time.Millisecond))
	require.True(t, q.Room(3*time.Millisecond))
}

// TestAServerThatMovedAway is not taken for a busy one for long.
func TestAServerThatMovedAway(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	q.NoteAt(0, 5, 1, 30*time.Microsecond)
	for i := range 100 {
		q.NoteAt(flight.While/50*time.Duration(i+1), 5, 1, 2*time.Millisecond)
		if i == 40 {
			require.Equal(t, 1, q.Limit())
		}
	}
	q.NoteAt(2*flight.While+time.Second, 5, 1, 2*time.Millisecond)
	q.NoteAt(3*flight.While+2*time.Second, 5, 1, 2*time.Millisecond)
	require.Equal(t, flight.Out, q.Limit())
}

// TestAFirstFlightIsNoCrowd: a few calls of one key that happen to leave
// together leave all places to those behind them.
func TestAFirstFlightIsNoCrowd(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	q.Note(8, 1, time.Microsecond)
	require.Equal(t, flight.Out, q.Limit())
}

// TestWhoIsAloneStaysSo: calls that are flights of their own are no crowd.
func TestWhoIsAloneStaysSo(t *testing.T) {
	set := script.Settings{Hub: &backend.Hub{}}
	q := flight.New(script.NewServer(redistest.Start(t).Client(t), "node", set), nil, time.Second, true)
	all := q.Limit()
	q.Note(100, 1, time.Microsecond)
	require.Equal(t, all, q.Limit())
}

// TestStayingIsNoTrip: calls that were never sent don't make a far server near.
func TestStayingIsNoTrip(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	for range 100 {
		q.Note(5, 1, 5*time.Millisecond)
	}
	require.Equal(t, flight.Out, q.Limit())
	q.Late(5)
	require.Equal(t, flight.Out, q.Limit())
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
