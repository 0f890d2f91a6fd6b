package batch_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// shut is a guard whose circuit is open until the node has answered.
type shut struct {
	verdicts
	entered, answered atomic.Int64
}

func (s *shut) Enter(node string) (func(error), error) {
	s.entered.Add(1)
	if s.answered.Load() == 0 {
		return nil, backend.ErrUnavailable
	}
	return s.verdicts.Enter(node)
}

func (s *shut) Awaits(string) bool { return s.answered.Load() == 0 }

func (s *shut) Full(backend.Full) {}

// TestRefusedWithoutABatch: while a circuit awaits an answer, one call is refused by a
// round trip and the others by what it was told. They are let through when the node has
// answered.
func TestRefusedWithoutABatch(t *testing.T) {
	server, guard, hub := redistest.Start(t), &shut{}, &layer.Shared{}
	hub.SetGuard(guard)
	hub.Close() // so that no probe sets out
	q := batch.NewQueue(batch.Alone(server.Client(t), hub, judgedBudget), nil)
	r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Cost: 1, Policies: policy(algo.FixedWindow(algo.PerMinute(5)))}}
	for range 10 {
		_, err := q.Ask(context.Background(), "k", 0, r)
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	require.EqualValues(t, 1, guard.entered.Load())
	guard.answered.Store(1)
	d, err := q.Ask(context.Background(), "k", 0, r)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}
