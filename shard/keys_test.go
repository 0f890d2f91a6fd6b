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
	ask := func(first, second int) (backend.Decision, error) {
		return layer.Ask(context.Background(), s, backend.Request{Op: backend.Take,
			Group: backend.Group{Key: "a", Policies: plain, Shards: first, Cost: 1},
			And:   []backend.Group{{Key: "b", Policies: plain, Shards: second, Cost: 1}}})
	}
	d, err := ask(0, 0)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	_, err = ask(0, 2)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	_, err = ask(2, 0)
	require.ErrorIs(t, err, backend.ErrUnsupported)
}
