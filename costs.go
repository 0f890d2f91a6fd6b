package headgate

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/internal/listed"
)

// Costs returns the units of named policies in the limiter's order, for Call.Costs and for
// Commit. So callers do not depend on that order. others are the units of the policies that are not
// named, in the limiter's order, such as a reservation's estimate. nil is 1 of each.
//
//	costs, err := l.Costs(nil, map[string]int64{"tokens": 2000})
//	...
//	r, d, err := l.Reserve(ctx, headgate.Call{Key: tenant, Costs: costs})
//	...
//	used, err := l.Costs(costs, map[string]int64{"tokens": tokens})
//	...
//	err = r.Commit(ctx, used...)
//
// A name that is not in the list is an *InvalidError that lists the names.
func (l *Limiter) Costs(others []int64, named map[string]int64) ([]int64, error) {
	if l.zero() {
		return nil, errZero
	}
	if others != nil && len(others) != len(l.policies) {
		return nil, &InvalidError{What: "costs", Value: len(others), Want: fmt.Sprintf("one for each of %d policies, or nil", len(l.policies))}
	}
	names := make([]string, len(l.policies))
	for i := range names {
		names[i] = l.policies[i].Name
	}
	units, missing := listed.Units(names, others, named)
	//mutant:costs-of-listed-names
	if missing != "" {
		return nil, &InvalidError{What: "policy", Value: missing, Want: "one of " + strings.Join(names, ", ")}
	}
	return units, nil
}
