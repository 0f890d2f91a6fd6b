package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// resumed returns the reservation of 400 tokens by one limiter as another has it.
func resumed(t *testing.T, l, other *headgate.Limiter) *headgate.Reservation {
	t.Helper()
	r, d := reserve(t, l, 400)
	require.True(t, d.Allowed)
	r, err := other.Resume(r.Token())
	require.NoError(t, err)
	return r
}

// TestTokenOfAnotherOrder: a settlement goes by the lease, where another release lists the
// policies in another order.
func TestTokenOfAnotherOrder(t *testing.T) {
	ctx := context.Background()
	slots := headgate.Policy{Name: "running", Algorithm: algo.InFlight(9), OnFailure: headgate.FailClosed}
	tokens := headgate.Policy{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(3_000_000)), OnFailure: headgate.FailClosed}
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, redistest.Start(t))} {
		t.Run(name, func(t *testing.T) {
			l, other := limiter(t, s, nil, slots, tokens), limiter(t, s, nil, tokens, slots)
			require.NoError(t, resumed(t, l, other).Commit(ctx))
			requireUsed(t, l, 0, 400)
			require.NoError(t, resumed(t, l, other).Commit(ctx, 1, 250))
			requireUsed(t, l, 0, 650)
			require.NoError(t, resumed(t, l, other).Commit(ctx, 1, 2_000_000), "more than there can be slots")
			requireUsed(t, l, 0, 2_000_650)
			require.NoError(t, resumed(t, l, other).Cancel(ctx))
			requireUsed(t, l, 0, 2_000_650)
		})
	}
}

// TestTokenOfAShadow: a policy that was a shadow when its units were reserved is settled
// as one, where another release enforces it. So is one that was enforced.
func TestTokenOfAShadow(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	calls, tokens := daily("calls", 100), daily("tokens", 1000)
	enforced := limiter(t, s, nil, calls, tokens)
	tokens.Shadow = true
	shadow := limiter(t, s, nil, calls, tokens)
	require.NoError(t, resumed(t, shadow, enforced).Commit(ctx, 1, 250))
	requireUsed(t, enforced, 1, 250)
	require.NoError(t, resumed(t, enforced, shadow).Commit(ctx, 1, 50))
	requireUsed(t, enforced, 2, 300)
}

// TestTokenOfAPlainKey: a reservation of a key that another release spreads is settled
// where it was charged.
func TestTokenOfAPlainKey(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	calls, tokens := daily("calls", 100), daily("tokens", 4000)
	plain := limiter(t, s, nil, calls, tokens)
	calls.Shards, tokens.Shards = 4, 4
	spread := limiter(t, s, nil, calls, tokens)
	r := resumed(t, plain, spread)
	require.NoError(t, r.Extend(ctx))
	require.NoError(t, r.Commit(ctx, 1, 250))
	requireUsed(t, plain, 1, 250)
	require.NoError(t, resumed(t, spread, plain).Commit(ctx, 1, 50))
	requireUsed(t, spread, 1, 50)
}
