package faulttest

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// Strict is a Store for tests of its callers, who must pass a zero Decision: a
// store need not write each field.
type Strict struct {
	backend.Store
	T *testing.T
}

// Do fails the test if d is not zero.
func (s Strict) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	require.Zero(s.T, *d)
	return s.Store.Do(ctx, r, d)
}
