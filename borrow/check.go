package borrow

import (
	"fmt"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Check asks next, and refuses a length that can't be kept.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.next.Check(policies); err != nil {
		return err
	}
	return Check(policies, s.next.Capabilities())
}

// Check refuses lists of which nothing can be lent as their policies say.
func Check(policies []backend.Policy, c backend.Capabilities) error {
	if !slices.ContainsFunc(policies, func(p backend.Policy) bool { return p.Borrow != 0 }) {
		return nil
	}
	if !c.Ops.Has(backend.Borrow) {
		return fmt.Errorf("%w: %v", backend.ErrUnsupported, backend.Borrow)
	}
	first := policies[0].Borrow
	for i := range policies {
		p := &policies[i]
		refuse := func(value any, want string) error {
			return &backend.InvalidError{What: "borrow of policy " + p.Name, Value: value, Want: want}
		}
		switch k := p.Algorithm.Kind(); {
		case p.Borrow != first:
			return refuse(p.Borrow, fmt.Sprintf("%v, as policy %s has: all policies of a list are lent together", first, policies[0].Name))
		case !k.Lends():
			return refuse(p.Borrow, fmt.Sprintf("0: units of %v are not lent", k))
		}
	}
	return backend.CheckBorrow(first)
}
