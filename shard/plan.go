package shard

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
)

// plan is a list of policies and what each share of it is.
type plan struct {
	policies []backend.Policy                   // never written
	parts    []atomic.Pointer[[]backend.Policy] // the list of each share, made when it is first asked
}

// newPlan makes no list of a share: a caller that has a list of its own for each
// call asks one or two of them.
func newPlan(policies []backend.Policy) *plan {
	return &plan{policies: policies, parts: make([]atomic.Pointer[[]backend.Policy], policies[0].Shards)}
}

// part returns the list of the i-th share.
func (p *plan) part(i int) []backend.Policy {
	if l := p.parts[i].Load(); l != nil {
		return *l
	}
	l := slices.Clone(p.policies)
	for j := range l {
		l[j].Algorithm, l[j].Shards = l[j].Algorithm.Part(int64(i), int64(len(p.parts))), 0
	}
	p.parts[i].CompareAndSwap(nil, &l) // one list for all, so that it is told by its address
	return *p.parts[i].Load()
}

// most returns the limit or burst of the i-th share of the j-th policy, as
// Algorithm.Part has it.
func (p *plan) most(i, j int) int64 {
	n, k := p.policies[j].Algorithm.Max(), int64(len(p.parts))
	return n*int64(i+1)/k - n*int64(i)/k
}

// says reports whether the plan is of these policies.
func (p *plan) says(policies []backend.Policy) bool {
	return len(p.policies) == len(policies) && (&p.policies[0] == &policies[0] || slices.Equal(p.policies, policies))
}

// admits refuses a cost that no share could ever grant, at once: a call takes
// from one of them.
func (p *plan) admits(r *backend.Request) error {
	if r.Op == backend.Reset {
		return nil
	}
	for j := range p.policies {
		if n, share := r.CostOf(j), p.most(0, j); n > share { // the first is the least; mutant: cost-above-share
			return backend.Wrap(backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n,
				Want: fmt.Sprintf("at most %d, the smallest of the %d shares of policy %q", share, len(p.parts), p.policies[j].Name)})
		}
	}
	return nil
}

// plansMost is the maximum number of plans that are kept while no key needs
// them, so that keys that are seen for the first time share one. A service has
// a few lists, or one per tenant.
const plansMost = 1024

// plan returns the plan of the list: the same for lists that say the same,
// while it is kept. One that was not is made again in less than a microsecond.
func (m *known) plan(policies []backend.Policy) *plan {
	if p := m.last.Load(); p != nil && p.says(policies) {
		return p
	}
	h := uint64(0)
	for i := range policies {
		h = h*31 + maphash.Comparable(m.seed, policies[i])
	}
	cells := len(policies) * policies[0].Shards
	at := &m.plans[h%uint64(max(1, min(plansMost, cellsMost/cells)))] // the larger the plans, the fewer
	p := at.Load()
	if p == nil || !p.says(policies) {
		p = newPlan(policies)
		at.Store(p)
	}
	m.last.Store(p)
	return p
}
