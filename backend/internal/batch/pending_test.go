package batch_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var ps = []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.Per(1000, algo.MaxPeriod)), OnFailure: backend.FailClosed}}

func take(key string) *backend.Request {
	return &backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps, Cost: 1}}
}

func queue(c batch.Client, budget time.Duration) *batch.Queue {
	set := batch.Settings{Prefix: names.DefaultPrefix, Budget: budget, Shared: &layer.Shared{}}
	return batch.NewQueue(batch.NewServer(c, "node", set), nil)
}

// stuck is a client that holds every command until it is let go.
type stuck struct {
	batch.Client
	held atomic.Int64
	let  chan struct{}
}

func (s *stuck) Process(ctx context.Context, cmd redis.Cmder) error {
	s.held.Add(1)
	<-s.let
	return s.Client.Process(ctx, cmd)
}

// TestFullQueue: what has no place in the queue is refused at once, and what
// has is decided.
func TestFullQueue(t *testing.T) {
	server := redistest.Start(t)
	c := &stuck{Client: server.Client(t), let: make(chan struct{})}
	q := queue(c, 20*time.Second)
	batch.SetMaxCallers(t, 100)
	var running sync.WaitGroup
	var passed, refused atomic.Int64
	for range 1000 {
		running.Add(1)
		go func() {
			defer running.Done()
			_, err := q.Ask(context.Background(), "k", 0, take("k"))
			if err == nil {
				passed.Add(1)
				return
			}
			if !assertUnavailable(t, err) {
				return
			}
			if refused.Add(1) == 1000-100 {
				close(c.let)
			}
		}()
	}
	running.Wait()
	require.EqualValues(t, 100, passed.Load())
	d, err := q.Ask(context.Background(), "k", 0, take("k"))
	require.NoError(t, err)
	require.EqualValues(t, 100+1, d.Used, "what was refused was not counted")
}

func assertUnavailable(t *testing.T, err error) bool {
	t.Helper()
	ok := err != nil && errors.Is(err, backend.ErrUnavailable)
	if !ok {
		t.Error(err)
	}
	return ok
}

// stalls returns the longest time for which the machine has kept a goroutine from
// running: on a busy one, a bound in time holds only beside it.
func stalls(t *testing.T) func() time.Duration {
	var longest atomic.Int64
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				longest.Store(max(longest.Load(), int64(time.Since(last))))
			}
		}
	}()
	return func() time.Duration { return 4 * time.Duration(longest.Load()) }
}

// decided asks until the queue decides: a busy machine may need more than a budget.
func decided(t *testing.T, q *batch.Queue) (d backend.Decision) {
	require.Eventually(t, func() (ok bool) {
		var err error
		d, err = q.Ask(context.Background(), "k", 0, take("k"))
		return err == nil
	}, 20*time.Second, time.Millisecond)
	return d
}

// TestHungClient: a client that does not come back holds the places of its batches
// no longer than the budget, and calls that wait too long are not sent.
func TestHungClient(t *testing.T) {
	const budget = 200 * time.Millisecond
	stall := stalls(t)
	server := redistest.Start(t)
	c := &stuck{Client: server.Client(t), let: make(chan struct{})}
	q := queue(c, budget)
	var running sync.WaitGroup
	for i := range 4 * batch.Many {
		running.Add(1)
		go func() {
			defer running.Done()
			time.Sleep(time.Duration(i) * budget / (3 * batch.Many))
			begin := time.Now()
			_, err := q.Ask(context.Background(), "k", 0, take("k"))
			assertUnavailable(t, err)
			if took := time.Since(begin); took > 2*budget+stall() {
				t.Errorf("took %v", took)
			}
		}()
	}
	running.Wait()
	held := c.held.Load()
	close(c.let)
	time.Sleep(50 * time.Millisecond) // what was held is written now, if it is written at all
	d := decided(t, q)
	require.EqualValues(t, 1, d.Used, "what nobody waits for any more is not sent, of %d that were held", held)
}

// hook runs f around every command of a client.
type hook struct{ f func() }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.f()
		return next(ctx, cmd)
	}
}

// TestHooksMayBlock: a hook that sleeps past the budget keeps no caller,
// whenever it was added; on a goroutine of a call it would.
func TestHooksMayBlock(t *testing.T) {
	const budget = 100 * time.Millisecond
	stall := stalls(t)
	client := redistest.Start(t).Client(t)
	q := queue(client, budget)
	for range 100 {
		decided(t, q)
	}
	var ran atomic.Int64
	client.AddHook(hook{func() { ran.Add(1); time.Sleep(10 * budget) }})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		begin := time.Now()
		_, err := q.Ask(context.Background(), "k", 0, take("k"))
		require.Less(t, time.Since(begin), 5*budget+stall())
		if ran.Load() > 0 {
			require.ErrorIs(t, err, backend.ErrUnavailable)
		}
	}
	require.Positive(t, ran.Load(), "a hook that is added later runs within a second")
}

// TestPanickingHook: a panic in a hook is an error of the calls, and the next
// are none the worse.
func TestPanickingHook(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var wild atomic.Bool
	client.AddHook(hook{func() {
		if wild.Load() {
			panic("hook")
		}
	}})
	q := queue(client, time.Second)
	for range 3 * batch.Many {
		wild.Store(true)
		_, err := q.Ask(context.Background(), "k", 0, take("k"))
		require.ErrorIs(t, err, backend.ErrUnavailable)
		wild.Store(false)
		_, err = q.Ask(context.Background(), "k", 0, take("k"))
		require.NoError(t, err)
	}
}

// TestGoexitingHook: a hook that ends its goroutine ends the call by its
// budget, and holds no place.
func TestGoexitingHook(t *testing.T) {
	client := redistest.Start(t).Client(t)
	q := queue(client, 50*time.Millisecond)
	var wild atomic.Bool
	wild.Store(true)
	client.AddHook(hook{func() {
		if wild.Load() {
			runtime.Goexit()
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // a context that may end: the call hands its round trip to a goroutine
	for range 2 * batch.Many {
		_, err := q.Ask(ctx, "k", 0, take("k"))
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	wild.Store(false)
	decided(t, q)
}
