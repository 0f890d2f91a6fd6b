package shard

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// plan is a list of policies and what each share of it is. Written once.
type plan struct {
	policies []backend.Policy
	parts    [][]backend.Policy // the list of each share
	steps    []int              // how many slots after the first share each lies
}

func newPlan(policies []backend.Policy) *plan {
	k := policies[0].Shards
	p := &plan{policies: policies, parts: make([][]backend.Policy, k), steps: steps(k)}
	for i := range p.parts {
		p.parts[i] = slices.Clone(policies)
		for j := range policies {
			part := &p.parts[i][j]
			part.Algorithm, part.Shards = part.Algorithm.Part(int64(i), int64(k)), 0
		}
	}
	return p
}

func steps(k int) []int {
	all := make([]int, k)
	for i := range all {
		all[i] = i * slot.Count / k
	}
	return all
}

// admits refuses a cost that no share could ever grant, at once: a call takes
// from one of them.
func (p *plan) admits(r *backend.Request) error {
	if r.Op == backend.Reset {
		return nil
	}
	for j := range p.policies {
		if n, share := r.CostOf(j), p.parts[0][j].Algorithm.Max(); n > share { // the first is the least
			return backend.Wrap(backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n,
				Want: fmt.Sprintf("at most %d, the smallest of the %d shares of policy %q", share, len(p.parts), p.policies[j].Name)})
		}
	}
	return nil
}

// list names a caller's list of policies, which nobody writes. It also holds
// it, so that no other list gets its address.
type list struct {
	first *backend.Policy
	n     int
}

// planned is the plan that was asked for last: a service with one list has
// no map to look in.
type planned struct {
	list list
	plan *plan
}

// plansMost is how many lists are known at once, while their plans have no more
// than cellsMost cells. A service has a few, or one a tenant.
const plansMost = 1024

// plan returns the plan of the list: the same for lists that say the same.
func (m *known) plan(policies []backend.Policy) *plan {
	at := list{&policies[0], len(policies)}
	if l := m.last.Load(); l != nil && l.list == at {
		return l.plan
	}
	for {
		old := m.plans.Load()
		if old != nil && (*old)[at] != nil {
			m.last.Store((*old)[at])
			return (*old)[at].plan
		}
		fresh := map[list]*planned{}
		if old != nil {
			maps.Copy(fresh, *old)
		}
		p := alike(fresh, policies)
		if p == nil {
			p = newPlan(policies)
		}
		thin(fresh, cellsMost-p.cells())
		if fresh[at] = (&planned{at, p}); m.plans.CompareAndSwap(old, &fresh) {
			return p
		}
	}
}

func (p *plan) cells() int { return len(p.parts) * len(p.policies) }

// thin makes room for one more: any of them goes, and what is known by it is
// asked for again.
func thin(plans map[list]*planned, cells int) {
	for _, l := range plans {
		cells -= l.plan.cells()
	}
	for at, l := range plans {
		if len(plans) < plansMost && cells >= 0 {
			break
		}
		cells += l.plan.cells()
		delete(plans, at)
	}
}

func alike(plans map[list]*planned, policies []backend.Policy) *plan {
	for _, p := range plans {
		if slices.Equal(p.plan.policies, policies) {
			return p.plan
		}
	}
	return nil
}
