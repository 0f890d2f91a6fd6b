package batch_test

import (
	"context"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
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
	batch.SetStarved(t, true)
	require.GreaterOrEqual(t, refused(t.Context()), 900*time.Millisecond)
	require.GreaterOrEqual(t, refused(t.Context()), 900*time.Millisecond, "a call after a refused one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Less(t, refused(ctx), 500*time.Millisecond)
	batch.SetStarved(t, false)
	require.Less(t, refused(t.Context()), 500*time.Millisecond)
}

// TestHostStarved: a host has no free processor if four times as many processes want one.
func TestHostStarved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports it")
	}
	for range 4 * runtime.NumCPU() {
		c := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	for begin := time.Now(); !batch.HostStarved(); {
		require.Less(t, time.Since(begin), 10*time.Second)
	}
}
