package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// freeVerbs are the verbs that charge, of one key. Each makes a call that costs nothing.
var freeVerbs = map[string]func(context.Context, *headgate.Limiter, headgate.Call) (headgate.Decision, error){
	"AllowN": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return l.AllowN(ctx, c.Key, 0)
	},
	"AllowAtMost": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return l.AllowAtMost(ctx, c.Key, 0)
	},
	"Do": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return l.Do(ctx, c)
	},
	"Record": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return l.Record(ctx, c)
	},
	"Wait": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return l.WaitCall(ctx, c)
	},
	"Reserve": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		_, d, err := l.Reserve(ctx, c)
		return d, err
	},
	"WaitReserve": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		_, d, err := l.WaitReserve(ctx, c)
		return d, err
	},
	"All": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return headgate.All(ctx, headgate.Part{Limiter: l, Call: c})
	},
	"ReserveAll": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		_, d, err := headgate.ReserveAll(ctx, headgate.Part{Limiter: l, Call: c})
		return d, err
	},
	"WaitAll": func(ctx context.Context, l *headgate.Limiter, c headgate.Call) (headgate.Decision, error) {
		return headgate.WaitAll(ctx, headgate.Part{Limiter: l, Call: c})
	},
}

// refusing returns a store that fails the test if a request reaches it.
func refusing(t *testing.T) *fake {
	return inMemory(func(_ context.Context, _ backend.Store, r *backend.Request, _ *backend.Decision) error {
		t.Errorf("the store was sent a %v", r.Op)
		return nil
	})
}

// TestFree: a call whose costs are all 0 passes by each verb, over each kind of store. No
// store is asked, and no number is shown as counted. What is wrong with it is still refused.
func TestFree(t *testing.T) {
	ctx := context.Background()
	limits := []headgate.Policy{
		{Name: "s", Algorithm: algo.SlidingLog(algo.PerDay(3)), OnFailure: headgate.FailClosed, Shadow: true},
		{Name: "a", Algorithm: algo.SlidingLog(algo.PerDay(10)), OnFailure: headgate.FailClosed},
		{Name: "b", Algorithm: algo.TokenBucket(algo.PerDay(20), 20), OnFailure: headgate.FailClosed},
	}
	for store, s := range map[string]backend.Store{"refusing": refusing(t), "memory": memory.New(nil)} {
		for name, verb := range freeVerbs {
			t.Run(store+"/"+name, func(t *testing.T) {
				for _, o := range []*headgate.Options{nil, {Observer: func(e headgate.Event) {
					require.True(t, e.Err != nil || e.Decision.Source == headgate.FromNone)
				}}} {
					l := limiter(t, s, o, limits...)
					each := make([]headgate.State, 3)
					d, err := verb(ctx, l, headgate.Call{Key: "k", Costs: []int64{0, 0, 0}, Each: each})
					require.NoError(t, err)
					want := headgate.State{Policy: "a", Limit: 10}
					require.Equal(t, headgate.Decision{Allowed: true, Source: headgate.FromNone, State: want}, d)
					if name != "AllowN" && name != "AllowAtMost" {
						require.Equal(t, []headgate.State{{Policy: "s", Limit: 3}, want, {Policy: "b", Limit: 20}}, each)
					}
					_, err = verb(ctx, l, headgate.Call{Costs: []int64{0, 0, 0}})
					invalid(t, err, "key", "")
					var none context.Context
					_, err = verb(none, l, headgate.Call{Key: "k", Costs: []int64{0, 0, 0}})
					invalid(t, err, "context", "nil")
				}
			})
		}
	}
	slots := limiter(t, refusing(t), nil, headgate.Policy{Name: "n", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed})
	_, err := slots.AllowN(ctx, "k", 0)
	invalid(t, err, "take", "n")
	_, d, err := slots.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{0}})
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// TestFreeReservation: a reservation of nothing is in no store. A Commit above 0 charges what
// was used once, and everything else changes nothing.
func TestFreeReservation(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		ctx := context.Background()
		l := limiter(t, s, &headgate.Options{TokenKey: make([]byte, 32)},
			headgate.Policy{Name: "a", Algorithm: algo.SlidingLog(algo.PerDay(10)), OnFailure: headgate.FailClosed},
			headgate.Policy{Name: "n", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed})
		reserve := func() *headgate.Reservation {
			r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{0, 0}})
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Empty(t, r.Token())
			require.Empty(t, r.ID())
			require.NoError(t, r.Extend(ctx))
			held, release := r.Hold(ctx)
			require.NoError(t, held.Err())
			release()
			return r
		}
		for _, nothing := range []func(*headgate.Reservation) error{
			func(r *headgate.Reservation) error { return r.Commit(ctx) },
			func(r *headgate.Reservation) error { return r.Commit(ctx, 0, 0) },
			func(r *headgate.Reservation) error { return r.Cancel(ctx) },
			func(r *headgate.Reservation) error { return r.Close() },
		} {
			require.NoError(t, nothing(reserve()))
			requireUsed(t, l, 0, 0)
		}
		r := reserve()
		each := make([]headgate.State, 2)
		require.NoError(t, r.CommitEach(ctx, each, 12, 0))
		require.EqualValues(t, 12, each[0].Used, "above the limit, as a Record")
		require.ErrorIs(t, r.Commit(ctx, 12, 0), headgate.ErrNotHeld)
		require.NoError(t, r.Close())
		requireUsed(t, l, 12, 0)
		_, err := l.Resume("")
		invalid(t, err, "token", "0")
	})
}

// TestSettledNothing: what is given back of a reservation that costs nothing sends no request.
func TestSettledNothing(t *testing.T) {
	l := limiter(t, refusing(t), nil, daily("a", 10))
	r, _, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{0}})
	require.NoError(t, err)
	require.NoError(t, r.Commit(context.Background(), 0))
	require.NoError(t, r.Close())
}

// TestFreeParts: of several parts those that cost nothing pass, and the others are decided.
// The decision names the place in the caller's list. No parts pass.
func TestFreeParts(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		ctx := context.Background()
		l := newLevels(t, s, nil)
		for _, none := range []func() (headgate.Decision, error){
			func() (headgate.Decision, error) { return headgate.All(ctx) },
			func() (headgate.Decision, error) { return headgate.WaitAll(ctx) },
			func() (headgate.Decision, error) { _, d, err := headgate.ReserveAll(ctx); return d, err },
		} {
			d, err := none()
			require.NoError(t, err)
			require.Equal(t, headgate.Decision{Allowed: true, Source: headgate.FromNone}, d)
		}
		parts := []headgate.Part{l.user.Part("u", 0), l.org.Part("o", 2), l.user.Part("v", 0, 0)}
		for _, some := range []func() (headgate.Decision, error){
			func() (headgate.Decision, error) { return headgate.All(ctx, parts...) },
			func() (headgate.Decision, error) { return headgate.WaitAll(ctx, parts...) },
		} {
			d, err := some()
			require.NoError(t, err)
			require.Equal(t, 1, d.At)
			require.Equal(t, backend.Exact, d.Known)
		}
		rs, d, err := headgate.ReserveAll(ctx, parts...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Len(t, rs, 3)
		require.NoError(t, rs.Commit(ctx, []int64{1, 0}, []int64{1}, []int64{0, 0}))
		requireCount(t, l.user, "u", 1)
		requireCount(t, l.org, "o", 5)
		requireCount(t, l.user, "v", 0)
		_, d, err = headgate.ReserveAll(ctx, l.user.Part("u", 0), l.org.Part("o", 9999))
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
		require.False(t, d.Allowed)
	})
}
