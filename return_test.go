package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestReturnIsRefused: what an InFlight or a LeakyQueue counts is not returned, nor what is spread
// over sub-keys or out of range.
func TestReturnIsRefused(t *testing.T) {
	ctx := context.Background()
	for name, policies := range map[string][]headgate.Policy{
		"slots": {{Name: "p", Algorithm: algo.InFlight(3), OnFailure: headgate.FailOpen}},
		"queue": {{Name: "p", Algorithm: algo.LeakyQueue(algo.PerSecond(10), 2, time.Second), OnFailure: headgate.FailOpen}},
		"both":  {daily("q", 5), {Name: "p", Algorithm: algo.InFlight(3), OnFailure: headgate.FailOpen}},
	} {
		l, err := headgate.New(memory.New(nil), policies, nil)
		require.NoError(t, err)
		_, err = l.Return(ctx, "k")
		invalid := new(headgate.InvalidError)
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, "p", invalid.Value, name)
	}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{daily("p", 100)}, &headgate.Options{Shards: 4})
	require.NoError(t, err)
	_, err = l.Return(ctx, "k")
	require.ErrorIs(t, err, headgate.ErrUnsupported)
	l = limiter(t, memory.New(nil), nil, daily("p", 100))
	for _, costs := range [][]int64{{-1}, {1, 1}, {algo.MaxCount + 1}} {
		_, err = l.Return(ctx, "k", costs...)
		require.ErrorAs(t, err, new(*headgate.InvalidError), "%v", costs)
	}
	d, err := l.Return(ctx, "k", 0)
	require.NoError(t, err)
	require.Equal(t, headgate.FromNone, d.Source, "no store is asked for nothing")
}

// TestReturnForgetsDenials: a denial that this process remembers ends with a Return, also if its
// answer is lost.
func TestReturnForgetsDenials(t *testing.T) {
	ctx := context.Background()
	w := lossyOf(memory.New(nil))
	w.shared = &layer.Shared{Clock: time.Now}
	l := limiter(t, w, nil, daily("p", 3))
	for range 2 {
		_, err := l.AllowN(ctx, "k", 3)
		require.NoError(t, err)
		for range 2 {
			requireDenied(t, l, "k")
		}
		w.lose(0, onAll)
		_, err = l.Return(ctx, "k", 3)
		require.True(t, errors.Is(err, headgate.ErrPerhapsCounted), "%v", err)
		w.lose(0, 0)
		d, err := l.Peek(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Zero(t, d.Used)
	}
	d, err := l.AllowN(ctx, "k", 3)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	requireDenied(t, l, "k")
	_, err = l.Return(ctx, "k")
	require.NoError(t, err)
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.True(t, d.Allowed && d.Source == headgate.FromStore)
}

func requireDenied(t *testing.T, l *headgate.Limiter, key string) {
	t.Helper()
	d, err := l.Allow(context.Background(), key)
	require.NoError(t, err)
	require.False(t, d.Allowed)
}
