package memory

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// check refuses a request before anything is looked at.
func (s *Store) check(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Closed.Load() { // mutant: memory-closed
		return backend.ErrClosed
	}
	if err := r.Check(ctx, capabilities); err != nil { // mutant: memory-context
		return err
	}
	for i := range 1 + len(r.And) {
		policies := r.GroupAt(i).Policies
		if n := len(policies); n > backend.MaxPolicies {
			return &backend.InvalidError{What: "policies", Value: n, Want: fmt.Sprintf("at most %d", backend.MaxPolicies)}
		}
		if r.Op == backend.Reset || r.Lease != nil { // whose algorithms Check may not have looked at
			if err := backend.CheckPolicies(policies); err != nil {
				return err
			}
		}
	}
	return nil
}
