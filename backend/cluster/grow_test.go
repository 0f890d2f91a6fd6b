package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// grows are the dimensions of a run of TestGrow.
type grows struct {
	callers, slots int
	opened         int           // keys of the first slot
	held           time.Duration // how long the first slot stays open
	budget         time.Duration
}

// TestGrow adds a fourth primary to a cluster under load, and takes it away
// again. The store is given one endpoint. A slot stays open towards the new
// primary while that owns none, and the store reloads its topology meanwhile:
// CLUSTER SLOTS does not name the node that ASK replies point to. No call
// fails, and each call is counted once.
func TestGrow(t *testing.T) {
	t.Parallel()
	g := grows{callers: 16, slots: 12, opened: 60, held: time.Second, budget: 5 * time.Second}
	if redistest.Long() {
		g = grows{callers: 256, slots: 600, opened: 300, held: 35 * time.Second, budget: time.Second}
	}
	c := redistest.StartCluster(t)
	added := c.Grow(t)
	var made atomic.Int64 // clients of the added node
	o := redis.ClusterOptions{Addrs: c.Addrs()[:1], NewClient: func(o *redis.Options) *redis.Client {
		if o.Addr == added.Addr() {
			made.Add(1)
		}
		return redis.NewClient(o)
	}}
	store := cluster.New(with{&o}, &cluster.Options{Budget: g.budget})
	defer store.Close()
	owner, other := c.Primary(0), c.Primary(slot.Count-1)
	load := beginGrowth(t, store, g)
	time.Sleep(g.held / 10)

	open := beginMove(t, c, 0, added)
	load.growing.Store(true)
	require.Eventually(t, func() bool { return added.CommandStats(t)["asking"].Calls > 20 }, 10*time.Second, 10*time.Millisecond,
		"no call was sent to the importing node")
	first := made.Load() // two calls that are redirected at once may both make a client; one is kept
	reloads := slotsAsked(t, c)
	for i, opened := 0, time.Now(); time.Since(opened) < g.held; i++ {
		// A MOVED reply makes the store reload the topology.
		move(t, c, []int{g.slots}, []*redistest.Server{other, owner}[i%2])
		open.keys(t, 1)
	}
	reloads = slotsAsked(t, c) - reloads
	asked := added.CommandStats(t)["asking"].Calls
	require.GreaterOrEqual(t, reloads, int64(2), "the topology was not reloaded while the slot was open")
	require.Equal(t, first, made.Load(), "a reload closed the client of the importing node")

	open.end(t)
	for s := 1; s < g.slots; s += 50 { // all nodes agree now and then
		move(t, c, between(s, min(s+50, g.slots)), added)
	}
	for s := 0; s < g.slots; s += 50 {
		move(t, c, between(s, min(s+50, g.slots)), owner)
	}
	c.Forget(t, added)
	time.Sleep(g.held / 10)
	calls := load.end()
	t.Logf("%d calls, %d redirected by ASK, %d reloads while the slot was open", calls, asked, reloads)
	load.check(t)
}

func between(from, to int) (slots []int) {
	for s := from; s < to; s++ {
		slots = append(slots, s)
	}
	return slots
}

// slotsAsked is how often the nodes were asked for their slots.
func slotsAsked(t *testing.T, c *redistest.Cluster) int64 {
	return c.CommandStats(t)["cluster|slots"].Calls
}

// growthLoad is what the callers of TestGrow do and see.
type growthLoad struct {
	store   *cluster.Store
	limiter *headgate.Limiter
	keys    []string    // of the slots that move
	opened  []string    // more of slot 0, from when it is open
	growing atomic.Bool // it is
	passed  atomic.Int64
	stop    chan struct{}
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		errors map[string]int
	}
}

func beginGrowth(t *testing.T, s *cluster.Store, g grows) *growthLoad {
	l := &growthLoad{store: s, limiter: faulttest.Limiter(t, s, faulttest.Huge), stop: make(chan struct{})}
	l.mu.errors = map[string]int{}
	perSlot := make([]int, g.slots+1)
	for i := 0; len(l.keys) < 2*len(perSlot) || len(l.opened) < g.opened; i++ {
		k := fmt.Sprint("grow", i)
		switch s := slot.Of(names.Tag(k, "")); {
		case s < len(perSlot) && perSlot[s] < 2:
			perSlot[s]++
			l.keys = append(l.keys, k)
		case s == 0 && len(l.opened) < g.opened:
			l.opened = append(l.opened, k)
		}
	}
	for range g.callers {
		l.running.Add(1)
		go l.calls()
	}
	return l
}

func (l *growthLoad) calls() {
	defer l.running.Done()
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		keys := l.keys
		if l.growing.Load() && rand.IntN(2) == 0 {
			keys = l.opened
		}
		d, err := l.limiter.Allow(context.Background(), keys[rand.IntN(len(keys))])
		if err == nil {
			err = d.Err
		}
		if err != nil {
			l.mu.Lock()
			l.mu.errors[err.Error()]++
			l.mu.Unlock()
			continue
		}
		l.passed.Add(1)
		time.Sleep(time.Millisecond)
	}
}

// end stops the callers and returns how many calls were decided.
func (l *growthLoad) end() int64 {
	close(l.stop)
	l.running.Wait()
	return l.passed.Load()
}

// check fails the test where a call failed, or was not counted once.
func (l *growthLoad) check(t *testing.T) {
	for text, n := range l.mu.errors {
		t.Errorf("%d times: %s", n, text)
	}
	counted := int64(0)
	for _, k := range append(l.keys, l.opened...) {
		counted += faulttest.Used(t, l.limiter, k)
	}
	require.Equal(t, l.passed.Load(), counted, "each call is counted once")
}
