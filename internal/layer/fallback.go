package layer

import (
	"context"
	"iter"

	"github.com/headgate-go/headgate/backend"
)

// Fallback is the layer that applies the failure modes. Do and DoAll decide without them:
// their caller may have another request to try, and calls Fail last.
type Fallback interface {
	backend.Store
	Batcher
	// Fail decides by the failure modes a request that no store decided because of err, and
	// counts it once. It sends no request. A denial that is known to stand comes before any
	// mode. Of several keys each group has the list and the settings of its own limiter. If the
	// key is spread, shares are requests to the sub-keys that could have decided it. Each of
	// them fails local by its own count, one after the other until one passes.
	Fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error, shares iter.Seq[*backend.Request]) error
}
