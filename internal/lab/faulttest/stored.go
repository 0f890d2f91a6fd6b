package faulttest

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// Inspected is a store that shows an operator what it keeps.
type Inspected interface {
	Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error]
	Stored(ctx context.Context, key string) ([]backend.Stored, error)
}

// KeysAndStored holds that what allow counted is found by name, and that a search ends
// where its caller ends it. allow takes a unit of a FixedWindow "api" in two shards.
func KeysAndStored(t *testing.T, s Inspected, allow func(key string) error) {
	for i := range 50 {
		require.NoError(t, allow(fmt.Sprint("user:", i)))
	}
	seen := map[string]bool{}
	for k, err := range s.Keys(t.Context(), "user:4") {
		require.NoError(t, err)
		require.NotEmpty(t, k.Sub)
		seen[k.Key] = true
	}
	require.Len(t, seen, 11, "user:4 and user:40 to user:49")
	for _, err := range s.Keys(t.Context(), "") {
		require.NoError(t, err)
		break
	}
	parts, err := s.Stored(t.Context(), "user:4")
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.Equal(t, "api", parts[0].Policies[0].Name)
	require.Equal(t, rule.KindFixedWindow, parts[0].Policies[0].Algorithm.Kind())
	parts, err = s.Stored(t.Context(), "nobody")
	require.NoError(t, err)
	require.Empty(t, parts)
}

// KeysAndStoredRefuse holds that both return want, once; of an InvalidError, any.
func KeysAndStoredRefuse(t *testing.T, s Inspected, ctx context.Context, want error) {
	_, err := s.Stored(ctx, "a")
	errs := []error{err}
	for _, err := range s.Keys(ctx, "") {
		errs = append(errs, err)
	}
	require.Len(t, errs, 2)
	for _, err := range errs {
		if _, ok := want.(*backend.InvalidError); ok {
			require.ErrorAs(t, err, new(*backend.InvalidError))
		} else {
			require.ErrorIs(t, err, want)
		}
	}
}
