package headgate_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestValue: each limiter keeps its own values, and makes each once.
func TestValue(t *testing.T) {
	l := limiter(t, memory.New(nil), nil, perMinute)
	other, err := l.With(perMinute)
	require.NoError(t, err)
	made := 0
	fresh := func() any { made++; return made }
	require.Equal(t, 1, l.Value("key", fresh))
	require.Equal(t, 1, l.Value("key", fresh))
	require.Equal(t, 2, other.Value("key", fresh))
	require.Equal(t, 2, made)
}

func TestLogger(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	require.Same(t, logger, limiter(t, memory.New(nil), &headgate.Options{Logger: logger}, perMinute).Logger())
	require.NotNil(t, limiter(t, memory.New(nil), nil, perMinute).Logger())
}

// TestTwice: the same count is the same store, key, name, algorithm and period.
func TestTwice(t *testing.T) {
	store := memory.New(nil)
	l := limiter(t, store, nil, perMinute)
	named := func(name string, a algo.Algorithm) *headgate.Limiter {
		return limiter(t, store, nil, headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailOpen})
	}
	name, twice := l.Call("k").Twice(named(perMinute.Name, algo.TokenBucket(algo.PerMinute(7), 7)).Call("k"))
	require.True(t, twice, "another limit")
	require.Equal(t, perMinute.Name, name)
	for what, q := range map[string]headgate.Part{
		"another key":    l.Call("other"),
		"another name":   named("other", perMinute.Algorithm).Call("k"),
		"another period": named(perMinute.Name, algo.FixedWindow(algo.PerHour(7))).Call("k"),
		"another store":  limiter(t, memory.New(nil), nil, perMinute).Call("k"),
		"nil":            {},
	} {
		_, twice := l.Call("k").Twice(q)
		require.False(t, twice, what)
	}
	_, twice = (&headgate.Limiter{}).Call("k").Twice((&headgate.Limiter{}).Call("k"))
	require.False(t, twice, "zero")
}

// TestHoldOfSeveralKeys: the leases of all keys are extended while the call runs.
func TestHoldOfSeveralKeys(t *testing.T) {
	slot := headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed}
	l := limiter(t, memory.New(nil), nil, slot)
	a, b := l.Call("a"), l.Call("b")
	a.Call.Lease, b.Call.Lease = time.Second, time.Second
	rs, d, err := headgate.ReserveAll(context.Background(), a, b)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	ctx, release := rs.Hold(context.Background())
	defer release()
	require.NoError(t, l.Reset(context.Background(), "b"))
	<-ctx.Done() // within a third of the lease
	require.ErrorIs(t, context.Cause(ctx), headgate.ErrNotHeld)
	release()
	require.NoError(t, rs.Close())
}
