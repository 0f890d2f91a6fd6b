package headgate

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/borrow"
)

// atHome decides a Take from units that this process has borrowed, if it has some of each
// key, and reports whether it did.
func (ks keys) atHome(ctx context.Context) bool {
	parts := make([]borrow.Part, 0, backend.MaxKeys)
	for i := range ks {
		p := borrow.Part{Store: ks[i].limiter.borrow, Request: &ks[i].request, Decision: &ks[i].decision}
		if !p.Borrows() {
			return false
		}
		parts = append(parts, p)
	}
	if !borrow.All(ctx, parts) {
		return false
	}
	for i := range ks {
		ks[i].told = true
	}
	return true
}

// took notes how long a round trip for all keys took, for those that borrow.
func (ks keys) took(trip time.Duration) {
	for i := range ks {
		if b := ks[i].limiter.borrow; b != nil {
			//mutant:all-notes-its-trips
			b.Took(trip)
		}
	}
}
