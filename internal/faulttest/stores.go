package faulttest

import (
	"context"
	"iter"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
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

// Attempts is a breaker without failure modes, for the suite: it returns the
// errors that they would answer. The suite's cases are about what a store
// returns, which a failure mode hides.
type Attempts struct{ Breaker }

// Breaker is *breaker.Store.
type Breaker interface {
	backend.Store
	layer.Fallback
	layer.Batcher
}

// Do attempts r once, without the policies' failure modes.
func (a Attempts) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	return a.Attempt(ctx, r, d)
}

// Fail returns err.
func (a Attempts) Fail(_ context.Context, _ *backend.Request, _ *backend.Decision, err error) error {
	return err
}

// FailAny returns the first request's error.
func (a Attempts) FailAny(_ context.Context, requests iter.Seq2[*backend.Request, error], _ *backend.Decision) error {
	for _, err := range requests {
		return err
	}
	return nil
}
