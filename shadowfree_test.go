package headgate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

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
		d, err := l.Wait(context.Background(), c)
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
		for _, shards := range []int{0, 2} {
			plain := daily("a", 20)
			plain.Shards = shards
			l := limiter(t, s, nil, plain, dailyShadow("s", 20, shards))
			for _, verbs := range []map[string]ask{takes, waits} {
				for verb, ask := range verbs {
					t.Run(fmt.Sprint(name, shards, verb), func(t *testing.T) { freeCalls(t, l, fmt.Sprint(verb, shards), ask) })
				}
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
	_, _, err := ask(l, headgate.Call{Key: key, Costs: []int64{0, 0}})
	invalid(t, err, "cost", "0")
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
