package shard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestCostsOutOfRange name the policy's own limit, as those of a plain key do;
// one that the limit has room for and no share has, names the share.
func TestCostsOutOfRange(t *testing.T) {
	s, _, _ := counting(t)
	refused := func(r backend.Request) error {
		_, err := layer.Ask(context.Background(), s, r)
		require.Error(t, err)
		return err
	}
	plain, spread := one(algo.FixedWindow(algo.PerDay(100)), 0), one(algo.FixedWindow(algo.PerDay(100)), 16)
	for _, ask := range []func(string, spreadList, int64) backend.Request{take, peek} {
		for _, n := range []int64{-1, 101} {
			require.EqualError(t, refused(ask("k", spread, n)), refused(ask("k", plain, n)).Error())
		}
		for _, n := range []int64{7, 100} {
			var bad *backend.InvalidError
			err := refused(ask("k", spread, n))
			require.ErrorIs(t, err, backend.ErrNeverAdmissible)
			require.True(t, errors.As(err, &bad) && bad.Value == n, "%v", err)
			require.Contains(t, bad.Want, "at most 6")
		}
	}
	require.EqualError(t, refused(take("k", spread, 0)), refused(take("k", plain, 0)).Error())
}
