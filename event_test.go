package headgate_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// events keeps what an observer receives.
type events struct {
	mu struct {
		sync.Mutex
		all []headgate.Event
	}
}

func (e *events) observe(x headgate.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.all = append(e.mu.all, x)
}

// forget drops what it has.
func (e *events) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.all = nil
}

// of returns the events of a type.
func (e *events) of(t headgate.EventType) (found []headgate.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.mu.all {
		if x.Type == t {
			found = append(found, x)
		}
	}
	return found
}

// TestEvents tells takes, peeks, resets and returned errors apart.
func TestEvents(t *testing.T) {
	seen, ctx := &events{}, context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{Observer: seen.observe})
	require.NoError(t, err)
	want, err := l.Allow(ctx, "k")
	require.NoError(t, err)
	_, _ = l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, l.Reset(ctx, "k"))
	_, err = l.Allow(ctx, "")
	require.Error(t, err)
	all := seen.of(headgate.EventDecision)
	require.Len(t, all, 4)
	for i, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset, backend.Take} {
		e := all[i]
		require.Equal(t, op, e.Op)
		require.Equal(t, l.Policies(), e.Policies)
		require.LessOrEqual(t, e.StoreTime, e.Duration)
		require.Positive(t, e.StoreTime)
	}
	require.Equal(t, "k", all[0].Key)
	require.Equal(t, want, all[0].Decision)
	require.NoError(t, all[0].Err)
	require.Equal(t, err, all[3].Err)
	require.Zero(t, all[3].Decision)
}

// TestEventsOfRedis: batches name their node, and a denial from the cache spends
// no time in the store.
func TestEventsOfRedis(t *testing.T) {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	seen, ctx := &events{}, context.Background()
	one := headgate.Policy{Name: "one", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen}
	l, err := headgate.New(store, []headgate.Policy{one}, &headgate.Options{Observer: seen.observe})
	require.NoError(t, err)
	for range 3 {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
	}
	all := seen.of(headgate.EventDecision)
	require.Positive(t, all[1].StoreTime)
	require.Equal(t, headgate.FromDenyCache, all[2].Decision.Source)
	require.Zero(t, all[2].StoreTime)
	require.Eventually(t, func() bool { return len(seen.of(headgate.EventBatch)) == 2 }, 10*time.Second, time.Millisecond)
	for _, e := range seen.of(headgate.EventBatch) {
		require.Equal(t, backend.Batch{Node: server.Addr(), Calls: 1, Keys: 1}, e.Batch)
		require.Positive(t, e.Duration)
	}
}

// TestAPanicOfTheObserver reaches no caller.
func TestAPanicOfTheObserver(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{Observer: func(headgate.Event) { panic("an observer's") }})
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.True(t, d.Allowed)
}
