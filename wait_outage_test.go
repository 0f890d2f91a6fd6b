package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// waitFor begins a Wait that ends in so long, and returns what it returns.
func waitFor(l *headgate.Limiter, most time.Duration) chan error {
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), most)
		defer cancel()
		_, err := l.Wait(ctx, "k")
		ended <- err
	}()
	return ended
}

// TestWaitAfterALocalDenial: a Wait that FailLocal has denied passes when the store is back,
// long before the local window ends.
func TestWaitAfterALocalDenial(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), context.Background()
	l := limiter(t, standalone.New(server.Client(t), nil), &headgate.Options{Instances: 4}, headgate.Policy{
		Name: "p", Algorithm: algo.SlidingWindow(algo.PerDay(8)), OnFailure: headgate.FailLocal})
	server.Kill()
	for range 2 { // the share of this process
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	ended := waitFor(l, 20*time.Second)
	time.Sleep(100 * time.Millisecond)
	server.Restart(t)
	require.NoError(t, <-ended)
}

// TestWaitAfterUncountedCalls: a denial that calls have prolonged which FailOpen passed
// refuses no Wait for its deadline.
func TestWaitAfterUncountedCalls(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), context.Background()
	l := limiter(t, standalone.New(server.Client(t), nil), nil, headgate.Policy{
		Name: "p", Algorithm: algo.TokenBucket(algo.Per(1, 5*time.Second), 1), OnFailure: headgate.FailOpen})
	require.Eventually(t, func() bool {
		d, err := l.Allow(ctx, "k")
		return err == nil && !d.Allowed && d.Source == headgate.FromStore
	}, 5*time.Second, time.Millisecond)
	server.Kill()
	require.Eventually(t, func() bool { // the unit is back
		d, err := l.Allow(ctx, "k")
		return err == nil && d.Allowed && d.Source == headgate.FromFailOpen
	}, 20*time.Second, 10*time.Millisecond)
	d, err := l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
	require.Equal(t, backend.NotCounted, d.Known)
	ended := waitFor(l, 4*time.Second)
	time.Sleep(100 * time.Millisecond)
	server.Restart(t) // with a unit
	require.NoError(t, <-ended)
}
