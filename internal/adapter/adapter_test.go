package adapter_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/stretchr/testify/require"
)

func limiter(t *testing.T, s backend.Store, name string, a algo.Algorithm, opts *headgate.Options) *headgate.Limiter {
	l, err := headgate.New(s, []headgate.Policy{{Name: name, Algorithm: a, OnFailure: headgate.FailOpen}}, opts)
	require.NoError(t, err)
	return l
}

var perMinute = algo.FixedWindow(algo.PerMinute(100))

// TestValue: each limiter keeps its own values, and makes each once. A zero one keeps none.
func TestValue(t *testing.T) {
	l := limiter(t, memory.New(nil), "api", perMinute, nil)
	other, err := l.With(l.Policies()...)
	require.NoError(t, err)
	made := 0
	fresh := func() any { made++; return made }
	require.Equal(t, 1, adapter.Of(l).Value("key", fresh))
	require.Equal(t, 1, adapter.Of(l).Value("key", fresh))
	require.Equal(t, 2, adapter.Of(other).Value("key", fresh))
	require.Equal(t, 2, made)
	require.Equal(t, 3, adapter.Of(new(headgate.Limiter)).Value("key", fresh))
	require.Equal(t, 4, adapter.Of((*headgate.Limiter)(nil)).Value("key", fresh))
}

func TestLogger(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	require.Same(t, logger, adapter.Of(limiter(t, memory.New(nil), "api", perMinute, &headgate.Options{Logger: logger})).Logger())
	require.NotNil(t, adapter.Of(limiter(t, memory.New(nil), "api", perMinute, nil)).Logger())
	require.NotNil(t, adapter.Of((*headgate.Limiter)(nil)).Logger())
}

// TestTwice: the same count is the same store, name, algorithm and period.
func TestTwice(t *testing.T) {
	store := memory.New(nil)
	l := limiter(t, store, "api", perMinute, nil)
	twice := func(p, q *headgate.Limiter) bool {
		_, twice := adapter.Of(p).Twice(adapter.Of(q))
		return twice
	}
	name, ok := adapter.Of(l).Twice(adapter.Of(limiter(t, store, "api", algo.FixedWindow(algo.PerMinute(7)), nil)))
	require.True(t, ok, "another limit")
	require.Equal(t, "api", name)
	for what, q := range map[string]*headgate.Limiter{
		"another name":   limiter(t, store, "other", perMinute, nil),
		"another period": limiter(t, store, "api", algo.FixedWindow(algo.PerHour(7)), nil),
		"another store":  limiter(t, memory.New(nil), "api", perMinute, nil),
		"nil":            nil,
	} {
		require.False(t, twice(l, q), what)
	}
	require.False(t, twice(new(headgate.Limiter), new(headgate.Limiter)), "zero")
}

// TestOwn: keys of denied calls are the adapter's if it wants that.
func TestOwn(t *testing.T) {
	l := limiter(t, memory.New(nil), "api", algo.FixedWindow(algo.PerDay(1)), nil)
	denied := func() int {
		for range 2 {
			_, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
		}
		return len(l.Stats().MostDenied)
	}
	adapter.Of(l).Own()
	require.Zero(t, denied())
	adapter.Of(l).Keys.Denied.Add("other", 0)
	require.Equal(t, []headgate.DeniedKey{{Key: "other", Denials: 1}}, l.Stats().MostDenied)
}
