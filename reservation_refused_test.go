package headgate_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestRefusedCommitKeepsEstimate: a Commit whose list is refused counts nothing, and the
// Close after it keeps the estimate. A Cancel still gives it back.
func TestRefusedCommitKeepsEstimate(t *testing.T) {
	ctx := context.Background()
	for name, list := range map[string][]int64{"negative": {-1}, "above": {math.MaxInt64}, "too long": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			l := perDay(t, memory.New(nil), headgate.FailOpen, "a", 10)
			for _, key := range []string{"closed", "cancelled", "corrected"} {
				r, d, err := l.Reserve(ctx, headgate.Call{Key: key, Costs: []int64{4}})
				require.NoError(t, err)
				require.True(t, d.Allowed)
				require.ErrorAs(t, r.Commit(ctx, list...), new(*headgate.InvalidError))
				requireKeyUsed(t, l, key, 4)
				want := int64(4)
				switch key {
				case "cancelled":
					require.NoError(t, r.Cancel(ctx))
					want = 0
				case "corrected":
					require.NoError(t, r.Commit(ctx, 7))
					want = 7
				}
				require.NoError(t, r.Close())
				requireKeyUsed(t, l, key, want)
			}
		})
	}
}

// TestRefusedCancelGivesBack: a Cancel that is refused, for its context, leaves Close to cancel.
func TestRefusedCancelGivesBack(t *testing.T) {
	l := perDay(t, memory.New(nil), headgate.FailOpen, "a", 10)
	r, _, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{4}})
	require.NoError(t, err)
	var none context.Context
	require.ErrorAs(t, r.Cancel(none), new(*headgate.InvalidError))
	require.NoError(t, r.Close())
	requireKeyUsed(t, l, "k", 0)
}

// TestRefusedCommitOfKeys: all lists are checked before one is sent, and Close keeps the
// estimates of all keys.
func TestRefusedCommitOfKeys(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, server)} {
		l := perDay(t, s, headgate.FailClosed, "a", 10)
		for i, lists := range [][][]int64{{{1}, {-1}}, {{-1}, {1}}, {{1}, {1, 1}}, {{1}}, {{1}, {1}, {1}}} {
			t.Run(fmt.Sprint(name, lists), func(t *testing.T) {
				user, org := fmt.Sprint("user", i), fmt.Sprint("org", i)
				rs, d, err := headgate.ReserveAll(ctx, l.Part(user, 4), l.Part(org, 4))
				require.NoError(t, err)
				require.True(t, d.Allowed)
				before := server.CommandStats(t)["evalsha"].Calls
				require.ErrorAs(t, rs.Commit(ctx, lists...), new(*headgate.InvalidError))
				require.Equal(t, before, server.CommandStats(t)["evalsha"].Calls)
				require.NoError(t, rs.Close())
				requireKeyUsed(t, l, user, 4)
				requireKeyUsed(t, l, org, 4)
			})
		}
	}
}

func requireKeyUsed(t *testing.T, l *headgate.Limiter, key string, want int64) {
	t.Helper()
	d, err := l.Peek(context.Background(), headgate.Call{Key: key})
	require.NoError(t, err)
	require.Equal(t, want, d.Used)
}
