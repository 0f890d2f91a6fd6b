package batch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
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
func gated(t *testing.T, apart bool) (*batch.Queue, *gate) {
	g := &gate{}
	c := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = batch.Many })
	c.AddHook(g)
	const budget = 10 * time.Second
	s := batch.NewServer(c, "node", batch.Settings{Prefix: names.DefaultPrefix, Budget: budget, Shared: &layer.Shared{}})
	var router batch.Router
	if apart {
		router = batch.NoRouter{Server: s}
	}
	return batch.NewQueue(s, router), g
}

// fill holds as many batches as may be in flight: later calls are pending until
// the gate opens. Another try is for a busy machine, on which a server seems to be busy too.
func fill(t *testing.T, q *batch.Queue, g *gate) (landed func()) {
	for try := 1; ; try++ {
		for range try * try {
			_, err := q.Ask(context.Background(), "warm", 0, take("warm"))
			require.NoError(t, err)
		}
		g.shut()
		var trips sync.WaitGroup
		held := true
		for i := 0; i < batch.Many && held; i++ {
			trips.Add(1)
			go func() {
				defer trips.Done()
				k := fmt.Sprint("held", i)
				_, _ = q.Ask(context.Background(), k, 0, take(k))
			}()
			for end := time.Now().Add(time.Second); !g.holds(i+1) && held; {
				time.Sleep(time.Millisecond / 4)
				held = time.Now().Before(end)
			}
		}
		if held {
			return trips.Wait
		}
		require.Less(t, try, 10, "so many batches are never in flight")
		g.open()
		trips.Wait()
	}
}

func both(t *testing.T, run func(t *testing.T, apart bool)) {
	t.Run("Joint", func(t *testing.T) { run(t, false) })
	t.Run("Apart", func(t *testing.T) { run(t, true) })
}

func waits(t *testing.T, q *batch.Queue, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return q.Pending() == n }, 5*time.Second, time.Millisecond)
}

// TestWhoLeavesHarmsNobody: the first of a batch to have come is gone when it
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
	g.open()
	landed()
	running.Wait()
	require.True(t, g.holds(batch.Many+1))
	require.False(t, g.holds(batch.Many+2), "one batch took all")
}
