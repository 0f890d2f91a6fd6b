package memory

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// check refuses a request before anything is looked at.
func (s *Store) check(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	//mutant:memory-closed
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	//mutant:memory-context
	if err := r.Check(ctx, capabilities); err != nil {
		return err
	}
	if r.Op == backend.Reset || r.Op == backend.Settle { // whose algorithms Check has not looked at
		return backend.CheckPolicies(r.Policies)
	}
	return nil
}
