package shard_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestKeysAreNotSpread: a request of several keys goes on as it is, and none of them
// may be spread.
func TestKeysAreNotSpread(t *testing.T) {
	m := memory.New(nil)
	s := shard.New(plain{m}, m)
	plain := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: backend.FailClosed}}
	spread := []backend.Policy{plain[0]}
	spread[0].Shards = 2
	ask := func(first, second []backend.Policy) (backend.Decision, error) {
		return layer.Ask(context.Background(), s, backend.Request{Op: backend.Take,
			Group: backend.Group{Key: "a", Policies: first, Cost: 1},
			And:   []backend.Group{{Key: "b", Policies: second, Cost: 1}}})
	}
	d, err := ask(plain, plain)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	_, err = ask(plain, spread)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	_, err = ask(spread, plain)
	require.ErrorIs(t, err, backend.ErrUnsupported)
}
