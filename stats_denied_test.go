package headgate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// denials calls f with a limiter of one unit per day on each kind of store: of each verb that
// decides, with an observer and without.
func denials(t *testing.T, f func(t *testing.T, l *headgate.Limiter)) {
	for name, open := range map[string]func(t *testing.T) backend.Store{
		"memory": func(*testing.T) backend.Store { return memory.New(nil) },
		"redis":  func(t *testing.T) backend.Store { return unhurried(t, redistest.Start(t)) },
	} {
		for what, observer := range map[string]func(headgate.Event){"observed": func(headgate.Event) {}, "unobserved": nil} {
			t.Run(name+"/"+what, func(t *testing.T) {
				l, err := headgate.New(open(t), []headgate.Policy{{
					Name: "api", Algorithm: algo.SlidingLog(algo.PerDay(1)), OnFailure: headgate.FailClosed,
				}}, &headgate.Options{Observer: observer})
				require.NoError(t, err)
				f(t, l)
			})
		}
	}
}

// TestMostDenied: each denied call counts for its key, whatever store and verb denied it, and no
// other call does.
func TestMostDenied(t *testing.T) {
	ctx := context.Background()
	denials(t, func(t *testing.T, l *headgate.Limiter) {
		require.Empty(t, l.Stats().MostDenied)
		allow := func(key string, calls int) {
			for range calls {
				_, err := l.Allow(ctx, key)
				require.NoError(t, err)
			}
		}
		allow("hot", 8) // of which 7 are denied
		_, err := l.Do(ctx, headgate.Call{Key: "hot"})
		require.NoError(t, err)
		_, _, err = l.Reserve(ctx, headgate.Call{Key: "hot"})
		require.NoError(t, err)
		_, err = l.AllowAtMost(ctx, "hot", 3)
		require.NoError(t, err)
		_, err = headgate.All(ctx, l.Part("fresh"), l.Part("hot"))
		require.NoError(t, err)
		_, err = l.Peek(ctx, headgate.Call{Key: "hot"})
		require.NoError(t, err)
		_, err = l.Record(ctx, headgate.Call{Key: "hot"})
		require.NoError(t, err)
		_, err = l.AllowN(ctx, "hot", 0)
		require.NoError(t, err)
		other, err := l.With(l.Policies()...)
		require.NoError(t, err)
		require.Equal(t, []headgate.DeniedKey{{Key: "hot", Denials: 11}}, other.Stats().MostDenied)
		for i := range 12 {
			allow(fmt.Sprint("key", i), 2)
		}
		most := l.Stats().MostDenied
		require.Len(t, most, 10)
		require.Equal(t, "hot", most[0].Key)
	})
}

// unreachable returns a store whose server does not answer.
func unreachable(t *testing.T) backend.Store {
	s, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMostDeniedOfNoStore: what a failure mode denies is not in it.
func TestMostDeniedOfNoStore(t *testing.T) {
	l, err := headgate.New(unreachable(t), []headgate.Policy{{
		Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed,
	}}, nil)
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailClosed, d.Source)
	require.Empty(t, l.Stats().MostDenied)
}

// TestFloodIsFound: of a million keys three are flooded, and Stats names them in their order within
// two seconds.
func TestFloodIsFound(t *testing.T) {
	redistest.Plain(t)
	ctx, keys := context.Background(), 1_000_000
	if testing.Short() {
		keys = 10_000
	}
	l, err := headgate.New(memory.New(&memory.Options{MaxKeys: 2 * keys}), []headgate.Policy{{
		Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed,
	}}, nil)
	require.NoError(t, err)
	for i := range 2 * keys { // each is denied once
		_, err := l.Allow(ctx, fmt.Sprint("user:", i%keys))
		require.NoError(t, err)
	}
	begin := time.Now()
	for i := 0; time.Since(begin) < time.Second; i++ {
		for n, key := range []string{"user:3", "user:2", "user:1"} {
			for range n + 1 {
				_, err := l.Allow(ctx, key)
				require.NoError(t, err)
			}
		}
	}
	var names []string
	for _, k := range l.Stats().MostDenied[:3] {
		names = append(names, k.Key)
	}
	require.Equal(t, []string{"user:1", "user:2", "user:3"}, names)
}

// TestTotals: a limiter that a page counts has what became of its calls, by the policy that bound.
func TestTotals(t *testing.T) {
	ctx := context.Background()
	denials(t, func(t *testing.T, l *headgate.Limiter) {
		two, err := l.With(
			headgate.Policy{Name: "wide", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: headgate.FailOpen},
			headgate.Policy{Name: "narrow", Algorithm: algo.FixedWindow(algo.PerDay(5)), OnFailure: headgate.FailOpen})
		require.NoError(t, err)
		a := adapter.Of(two)
		_, err = two.Allow(ctx, "k")
		require.NoError(t, err)
		require.Zero(t, a.Totals().Passed)
		a.Begin()
		for range 6 {
			_, err := two.Allow(ctx, "k")
			require.NoError(t, err)
		}
		require.Equal(t, adapter.Totals{Passed: 4, Denied: []int64{0, 2}}, a.Totals())
		all := a.Keys.Near.Top(9, time.Now())
		require.Len(t, all, 1)
		require.EqualValues(t, 2, all[0].Count, "the fourth of five units and the fifth")
		_, err = headgate.All(ctx, two.Part("other"), two.Part("k"))
		require.NoError(t, err)
		_, err = headgate.All(ctx, two.Part("other"), two.Part("another"))
		require.NoError(t, err)
		require.Equal(t, adapter.Totals{Passed: 6, Denied: []int64{0, 3}}, a.Totals(), "a pass is one of each part")
	})
}

// TestTotalsOfNoStore: a call that a failure mode decided is undecided.
func TestTotalsOfNoStore(t *testing.T) {
	l, err := headgate.New(unreachable(t), []headgate.Policy{{
		Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen,
	}}, nil)
	require.NoError(t, err)
	adapter.Of(l).Begin()
	_, err = l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, adapter.Totals{Denied: []int64{0}, Undecided: 1}, adapter.Of(l).Totals())
}
