package faulttest

import (
	"context"
	"iter"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Attempts is a breaker without failure modes, for the suite: it returns the errors
// that they would answer.
type Attempts struct{ Breaker }

// Breaker is *breaker.Store.
type Breaker interface {
	backend.Store
	layer.Fallback
	layer.Batcher
}

// Do attempts r.
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
