package memory

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestUnsoundAlgorithms: a request that no limiter made may list what Check
// refuses. It is an *InvalidError for every operation, and holds no lock.
func TestUnsoundAlgorithms(t *testing.T) {
	s := New(nil)
	sound := by("p", algo.FixedWindow(algo.PerDay(10)))
	for _, a := range []algo.Algorithm{
		{}, algo.FixedWindow(algo.Limit{}), algo.SlidingWindow(algo.Limit{Events: 1}), algo.TokenBucket(algo.Limit{}, 0),
		algo.BucketedWindow(algo.PerSecond(1), 0), algo.BucketedWindow(algo.PerSecond(1), 1<<40), algo.SlidingLog(algo.Limit{}),
	} {
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
			for _, ps := range [][]backend.Policy{{by("q", a)}, {sound, by("q", a)}} {
				var invalid *backend.InvalidError
				_, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: backend.Group{Key: "k", Policies: ps, Cost: 1}})
				require.ErrorAs(t, err, &invalid, "%v of %v", op, &a)
				require.NotEmpty(t, invalid.What)
			}
		}
		require.Zero(t, ask(t, s, backend.Peek, backend.Group{Key: "k", Policies: []backend.Policy{sound}}).Used)
	}
}

// TestAPolicyListedTwice is an *InvalidError, as is a list that is too long.
func TestAPolicyListedTwice(t *testing.T) {
	s := New(nil)
	p := by("p", algo.FixedWindow(algo.PerDay(10)))
	for _, ps := range [][]backend.Policy{{p, p}, make([]backend.Policy, backend.MaxPolicies+1)} {
		for i := range ps {
			ps[i] = p
		}
		var invalid *backend.InvalidError
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: ps, Cost: 1}})
		require.ErrorAs(t, err, &invalid)
	}
	require.Zero(t, s.Len())
}

// TestZeroStore: no method panics, and those that return an error return an
// *InvalidError.
func TestZeroStore(t *testing.T) {
	ps := []backend.Policy{by("p", kinds[0])}
	for _, s := range []*Store{new(Store), nil} {
		for name, err := range map[string]error{
			"Check": s.Check(ps), "Close": s.Close(),
			"Do": s.Do(context.Background(), &backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: ps, Cost: 1}}, new(backend.Decision)),
		} {
			var invalid *backend.InvalidError
			require.ErrorAs(t, err, &invalid, name)
			require.Equal(t, "store", invalid.What)
		}
	}
	s := new(Store)
	require.Zero(t, s.Len())
	require.NotNil(t, s.Shared())
}

// TestClosedStore decides nothing and counts nothing, of a key that it knows or
// not.
func TestClosedStore(t *testing.T) {
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("p", slow(10)[0])}, Cost: 1}
	ask(t, s, backend.Take, g)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.True(t, s.Shared().Closed.Load())
	for _, key := range []string{"k", "new"} {
		g.Key = key
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
			_, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
			require.ErrorIs(t, err, backend.ErrClosed)
		}
	}
	require.Equal(t, 1, s.Len())
}

// TestEndedContext: its error, and no count changes.
func TestEndedContext(t *testing.T) {
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("p", slow(10)[0])}, Cost: 1}
	ask(t, s, backend.Take, g)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
		_, err := layer.Ask(ctx, s, backend.Request{Op: op, Group: g})
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, int64(1), ask(t, s, backend.Peek, g).Used)
}
