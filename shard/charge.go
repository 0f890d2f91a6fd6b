package shard

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Charge is what a lease has charged on a spread key, as far as its settlement needs it.
// That of a key that is not spread is zero: there the store keeps all of it in the lease.
type Charge struct {
	Receipt backend.Receipt // names the sub-key that was charged
	Spared  []bool          // the shadows that had no room; nil: none is known
	Counts  []uint64        // hashes of the counts that were charged; nil: those of the policies that settle
}

// Want makes a Reserve of a spread key fill the receipt, and wants states if there are
// shadows. It returns the states that Note reads once the request is decided; nil: none.
//
// The store keeps the lease with the sub-key that was charged, so a settlement must be sent
// there.
func (c *Charge) Want(r *backend.Request) []backend.State {
	if !spread(r) {
		return nil
	}
	r.Receipt = &c.Receipt
	if r.Each == nil && slices.ContainsFunc(r.Policies, func(p backend.Policy) bool { return p.Shadow }) {
		r.Each = make([]backend.State, len(r.Policies))
	}
	return r.Each
}

// Note notes which shadows had no room. Their leases do not charge them, and the record
// of what a Commit adds to the estimate must not either.
func (c *Charge) Note(policies []backend.Policy, each []backend.State) {
	for i := range each {
		//mutant:spared-shadow-recorded
		if policies[i].Shadow && each[i].RetryAfter > 0 {
			if c.Spared == nil {
				c.Spared = make([]bool, len(each))
			}
			c.Spared[i] = true
		}
	}
}

// Spares reports whether the i-th policy is a shadow that is known to have had no room.
func (c *Charge) Spares(i int) bool { return c.Spared != nil && c.Spared[i] }

// Count returns a hash of the count that was charged of the i-th policy.
func (c *Charge) Count(policies []backend.Policy, i int) uint64 {
	if c.Counts != nil {
		return c.Counts[i]
	}
	return countOf(&policies[i])
}

// countOf returns a hash of whose count a policy asks for.
func countOf(p *backend.Policy) uint64 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, p.Name, p.Algorithm.Identity()) // never fails
	return uint64(h.Sum32())
}

// Estimates returns the costs of a Settle by these policies. What is above them goes to
// sub-keys with room, and may raise a count to near its limit.
//
// No sub-key gets the excess of a shadow without room, or of a count that the lease has not
// charged. Its estimate becomes the greatest cost, which nothing exceeds. Of an unresolved
// lease it is not known which shadows had room, so none gets any: a shadow may count too
// little, never too much.
func (c *Charge) Estimates(policies []backend.Policy, costs []int64, unresolved bool) []int64 {
	if c.Receipt.Sub == "" {
		return costs
	}
	costs = slices.Clone(costs)
	for i := range costs {
		//mutant:unresolved-shadow-spared
		spared := c.Spares(i) || unresolved && policies[i].Shadow
		//mutant:excess-of-another-count
		if spared || c.Count(policies, i) != countOf(&policies[i]) {
			costs[i] = policies[i].Algorithm.Kind().MaxLimit() // only by the lease
		}
	}
	return costs
}
