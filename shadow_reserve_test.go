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
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestShadowReservation: a shadow is reserved and settled beside the others, and gets
// its estimate back where the others deny.
func TestShadowReservation(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, memory.New(nil), nil,
		headgate.Policy{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "shadow", Algorithm: algo.FixedWindow(algo.PerDay(2000)), OnFailure: headgate.FailClosed, Shadow: true},
		headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed, Shadow: true})
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{600, 600, 1}})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	requireUsed(t, l, 600, 600, 1)
	require.NoError(t, r.Extend(ctx))
	require.NoError(t, r.Commit(ctx, 500, 500, 1))
	requireUsed(t, l, 500, 500, 0)
	_, d, err = l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{600, 600, 1}})
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Eventually(t, func() bool { return headgate.Cancelling(l) == 0 }, 10*time.Second, time.Millisecond)
	requireUsed(t, l, 500, 500, 0)
	require.NoError(t, l.Reset(ctx, "k"))
	requireUsed(t, l, 0, 0, 0)
}

// TestShadowFailsLocal: a reservation in this process is settled beside a shadow too.
func TestShadowFailsLocal(t *testing.T) {
	s := newLossy()
	s.lose(onAll, 0)
	l := limiter(t, s, &headgate.Options{Instances: 1},
		headgate.Policy{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: headgate.FailLocal},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: headgate.FailLocal, Shadow: true})
	for range 3 {
		r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{8, 8}})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.ErrorIs(t, r.Cancel(context.Background()), headgate.ErrUnavailable)
	}
}

// TestShadowDeniedCommit: a reservation that a shadow denied passes, and its Commit does.
func TestShadowDeniedCommit(t *testing.T) {
	ctx := context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "s", Algorithm: algo.FixedWindow(algo.Per(1, 24*time.Hour)), OnFailure: headgate.FailOpen, Shadow: true}}, nil)
	require.NoError(t, err)
	for i := range 2 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NoError(t, r.Commit(ctx, 1), "reservation %d", i)
	}
}

// TestShadowOfLargeCommit: what was used may be more than a shadow's algorithm can count.
func TestShadowOfLargeCommit(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	one := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "standalone": one} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, s, nil, daily("a", 1<<30),
				headgate.Policy{Name: "b", Algorithm: algo.SlidingLog(algo.PerDay(1_000_000)), OnFailure: headgate.FailOpen, Shadow: true})
			r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{10, 10}})
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.NoError(t, r.Commit(ctx, 3_000_000, 3_000_000))
			requireUsed(t, l, 3_000_000, 1_000_000)
			_, err = l.AllowN(ctx, "k", 3_000_000)
			require.NoError(t, err)
			requireUsed(t, l, 6_000_000, 1_000_000)
		})
	}
}

// TestShadowDeniedFromCache: what a shadow denied is not counted by the Commit,
// whether the store denied it or the deny cache.
func TestShadowDeniedFromCache(t *testing.T) {
	ctx := context.Background()
	s := remote(memory.New(nil))
	l, err := headgate.New(s, []headgate.Policy{dailyShadow("s", 1)}, nil)
	require.NoError(t, err)
	for i := range 5 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NoError(t, r.Commit(ctx, 1))
		if i == 1 {
			// fill the cache again: a settle forgets it
			_, err = l.Allow(ctx, "k")
			require.NoError(t, err)
		}
	}
	d, err := l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Used)
}

// TestShadowDeniedFromCacheOfAll is TestShadowDeniedFromCache for a reservation of several
// keys.
func TestShadowDeniedFromCacheOfAll(t *testing.T) {
	ctx := context.Background()
	s := remote(memory.New(nil))
	l, err := headgate.New(s, []headgate.Policy{dailyShadow("s", 1)}, nil)
	require.NoError(t, err)
	for range 2 {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
	}
	rs, d, err := headgate.ReserveAll(ctx, l.Part("other"), l.Part("k"))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, rs.Commit(ctx))
	requireCount(t, l, "k", 1)
	requireCount(t, l, "other", 1)
}

// ask is a verb that takes the costs of a call.
type ask func(*headgate.Limiter, headgate.Call) (headgate.Reservations, headgate.Decision, error)

// takes are the verbs that answer at once, and waits those that answer when the call
// passes.
var takes, waits = map[string]ask{
	"Do": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		d, err := l.Do(context.Background(), c)
		return nil, d, err
	},
	"Reserve": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		r, d, err := l.Reserve(context.Background(), c)
		return headgate.Reservations{r}, d, err
	},
	"All of a key": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		d, err := headgate.All(context.Background(), headgate.Part{Limiter: l, Call: c})
		return nil, d, err
	},
	"All": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		first := headgate.Part{Limiter: l, Call: c}
		first.Call.Key = "before " + c.Key
		d, err := headgate.All(context.Background(), first, headgate.Part{Limiter: l, Call: c})
		return nil, d, err
	},
	"ReserveAll": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		return headgate.ReserveAll(context.Background(), headgate.Part{Limiter: l, Call: c})
	},
}, map[string]ask{
	"Wait": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		d, err := l.WaitCall(context.Background(), c)
		return nil, d, err
	},
	"WaitReserve": func(l *headgate.Limiter, c headgate.Call) (headgate.Reservations, headgate.Decision, error) {
		r, d, err := l.WaitReserve(context.Background(), c)
		return headgate.Reservations{r}, d, err
	},
}

// TestShadowFree: a cost may be 0 for all shadows, or for all enforced policies, by each
// verb, and a Commit charges what was used all the same.
func TestShadowFree(t *testing.T) {
	server := redistest.Start(t)
	one := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "standalone": one} {
		l := limiter(t, s, nil, daily("a", 20), dailyShadow("s", 20))
		for _, verbs := range []map[string]ask{takes, waits} {
			for verb, ask := range verbs {
				t.Run(fmt.Sprint(name, verb), func(t *testing.T) { freeCalls(t, l, verb, ask) })
			}
		}
	}
}

func freeCalls(t *testing.T, l *headgate.Limiter, key string, ask ask) {
	for _, costs := range [][]int64{{1, 0}, {0, 1}} {
		c := headgate.Call{Key: fmt.Sprint(key, costs), Costs: costs}
		rs, d, err := ask(l, c)
		require.NoError(t, err)
		require.True(t, d.Allowed, d.Err)
		requireEach(t, l, c.Key, costs...)
		if rs != nil {
			requireSettledOnce(t, l, c, rs)
			rs, _, err = ask(l, c)
			require.NoError(t, err)
			requireCancelledOnce(t, l, c, rs)
		}
	}
	_, d, err := ask(l, headgate.Call{Key: key, Costs: []int64{0, 0}})
	require.NoError(t, err)
	require.Equal(t, headgate.FromNone, d.Source)
	requireEach(t, l, "before "+key, 0, 0)
}

// requireSettledOnce commits more than was reserved.
func requireSettledOnce(t *testing.T, l *headgate.Limiter, c headgate.Call, rs headgate.Reservations) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, rs.Extend(ctx))
	require.NoError(t, rs.Commit(ctx, []int64{3, 3}))
	requireEach(t, l, c.Key, 3, 3)
	require.ErrorIs(t, rs.Commit(ctx, []int64{4, 4}), headgate.ErrNotHeld)
	requireEach(t, l, c.Key, 3, 3)
}

// requireCancelledOnce cancels, and commits in another process.
func requireCancelledOnce(t *testing.T, l *headgate.Limiter, c headgate.Call, rs headgate.Reservations) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, rs.Cancel(ctx))
	r, err := l.Resume(rs[0].Token())
	require.NoError(t, err)
	require.ErrorIs(t, r.Commit(ctx, 4, 4), headgate.ErrNotHeld)
	requireEach(t, l, c.Key, 3, 3)
}

// requireEach requires what a key has used of two policies.
func requireEach(t *testing.T, l *headgate.Limiter, key string, want ...int64) {
	t.Helper()
	each := make([]headgate.State, 2)
	_, err := l.Peek(context.Background(), headgate.Call{Key: key, Each: each})
	require.NoError(t, err)
	require.Equal(t, want, []int64{each[0].Used, each[1].Used}, key)
}
