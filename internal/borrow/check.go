package borrow

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Check refuses a term for which units of these policies can't be lent. 0 is none.
func Check(policies []backend.Policy, term time.Duration, c backend.Capabilities) error {
	if term == 0 {
		return nil
	}
	if !c.Ops.Has(backend.Borrow) {
		return fmt.Errorf("%w: %v", backend.ErrUnsupported, backend.Borrow)
	}
	for i := range policies {
		if k := policies[i].Algorithm.Kind(); !k.Lends() {
			return &backend.InvalidError{What: "borrow", Value: term, Want: fmt.Sprintf("0 for policy %s: units of %v are not lent", policies[i].Name, k)}
		}
	}
	return backend.CheckBorrow(term)
}
