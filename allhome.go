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

// attempt requests all keys at once. Limiters that borrow note how long that took.
func (ks keys) attempt(ctx context.Context, r *backend.Request, d *Decision) error {
	var begin time.Time // zero: none borrows, and the clock is not read
	for i := range ks {
		if begin.IsZero() && ks[i].borrows() {
			begin = time.Now()
		}
	}
	err := ks[0].limiter.breaker.Attempt(ctx, r, d)
	for i := range ks {
		//mutant:all-notes-its-trips
		if err == nil && ks[i].borrows() {
			ks[i].limiter.borrow.Took(time.Since(begin))
		}
	}
	return err
}

// borrows reports whether the key's limiter borrows.
func (k *keyed) borrows() bool {
	l := k.limiter
	return l.borrow != nil && len(l.policies) > 0 && l.policies[0].Borrow > 0
}
