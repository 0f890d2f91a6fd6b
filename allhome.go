package headgate

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/borrow"
)

// atHome decides a Take from units that this process has borrowed, if it has some of each
// key, and reports whether it did.
func (ks keys) atHome(ctx context.Context) bool {
	for i := range ks {
		l := ks[i].limiter
		if ks[i].request.Op != backend.Take || l.borrow == nil || len(l.policies) == 0 || l.policies[0].Borrow == 0 {
			return false
		}
	}
	parts := make([]borrow.Part, len(ks))
	for i := range ks {
		parts[i] = borrow.Part{Store: ks[i].limiter.borrow, Request: &ks[i].request, Decision: &ks[i].decision}
	}
	if !borrow.All(ctx, parts) {
		return false
	}
	for i := range ks {
		ks[i].told = true
	}
	return true
}
