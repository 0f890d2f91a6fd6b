package batch_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/stretchr/testify/require"
)

// TestRefusalOnAStarvedHost: on a host without a free processor a call that an open circuit refuses
// waits for its budget, and for its caller's context at most.
func TestRefusalOnAStarvedHost(t *testing.T) {
	hub := &layer.Shared{}
	hub.SetGuard(&shut{})
	hub.Close() // so that no probe sets out
	q := batch.NewQueue(batch.Alone(redistest.Start(t).Client(t), hub, time.Second), nil)
	r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Cost: 1, Policies: policy(algo.FixedWindow(algo.PerMinute(5)))}}
	refused := func(ctx context.Context) time.Duration {
		begin := time.Now()
		_, err := q.Ask(ctx, "k", 0, r)
		require.Error(t, err)
		return time.Since(begin)
	}
	t.Cleanup(starved.Pretend(true))
	require.GreaterOrEqual(t, refused(t.Context()), 900*time.Millisecond)
	require.GreaterOrEqual(t, refused(t.Context()), 900*time.Millisecond, "a call after a refused one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Less(t, refused(ctx), 500*time.Millisecond)
	starved.Pretend(false)
	require.Less(t, refused(t.Context()), 500*time.Millisecond)
}

// TestLateOnAStarvedHost: a round trip that is late on a host without a free processor begins no
// connection. A connection whose PING is answered late is used again.
func TestLateOnAStarvedHost(t *testing.T) {
	const budget = 200 * time.Millisecond
	for host, looks := range map[bool]int{false: 1, true: 0} {
		l := linked(t, budget, 0)
		require.NoError(t, ask(l.Server))
		l.idle(t, 3)
		dialled := l.relay.Dialled()
		undo := starved.Pretend(host)
		l.relay.SetRoundTrip(2 * budget)
		require.Error(t, ask(l.Server))
		time.Sleep(budget / 2)
		l.relay.SetRoundTrip(0) // for what is sent from now on
		time.Sleep(3 * budget)  // the replies have come
		require.NoError(t, ask(l.Server))
		l.idle(t, 3)
		require.Equal(t, dialled+looks, l.relay.Dialled())
		undo()
	}
}
