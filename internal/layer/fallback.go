package layer

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// Fallback is the layer that applies the failure modes.
type Fallback interface {
	backend.Store
	// Attempt decides r without its failure modes, for a caller that has another
	// request to try.
	Attempt(ctx context.Context, r *backend.Request, d *backend.Decision) error
	// AttemptAll is DoAll without the failure modes.
	AttemptAll(ctx context.Context, rs []backend.Request, answers []Answer)
	// Fail decides by the failure modes a request that Attempt has not decided because of err.
	// Of several keys each group has the list and the settings of its own limiter.
	Fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error) error
	// FailAny decides, and counts once, a call that each of n requests could have
	// decided, as if the store had answered each with err. It counts as the first of them
	// that FailLocal allows, else as the last. It sends no request.
	FailAny(ctx context.Context, n int, request func(i int) *backend.Request, err error, d *backend.Decision) error
	// Known answers a call that failed with err by a denial of its key that is known to
	// stand, in place of the failure modes. It reports whether there is one.
	Known(r *backend.Request, d *backend.Decision, err error) bool
	// Lost counts a reply that was lost, of a call that ends with what it had before.
	Lost(cause error)
}
