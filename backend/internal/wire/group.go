// Package wire is the format in which calls travel to the Lua script and its
// answers come back. The comment of lua/decide.lua describes it. The package does
// no I/O.
package wire

import (
	"slices"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Call is what one call asks, and after Read what it met.
type Call struct {
	Err error // why nothing was decided

	cost     int64
	costs    []int64 // one per policy; empty where every policy is asked cost
	now      int64   // of the script
	readings []backend.Reading
}

// Ask makes the call ask what g does. It keeps nothing of the caller's, who may
// leave and use its buffers for something else.
func (c *Call) Ask(g *backend.Group) {
	c.Err, c.cost, c.costs = nil, g.Cost, append(c.costs[:0], g.Costs...)
	c.readings = c.readings[:0]
}

// Decide writes the answer to g, on the goroutine whose buffers g names.
func (c *Call) Decide(op backend.Op, g *backend.Group, d *backend.Decision) error {
	if c.Err == nil { // mutant: no-answer-with-error
		g.Decide(op, c.now, c.readings, d)
	}
	return c.Err
}

func (c *Call) costOf(i int) int64 {
	if len(c.costs) == 0 {
		return c.cost
	}
	return c.costs[i]
}

func (c *Call) sameCosts(d *Call) bool {
	if len(c.costs) == 0 && len(d.costs) == 0 {
		return c.cost == d.cost
	}
	return slices.Equal(c.costs, d.costs)
}

// Group is the calls of one key for one operation by one list of policies, in
// their order.
type Group struct {
	Op       backend.Op
	Key      string // as the caller names it, for errors
	Tag      string // stands between the braces of the stored keys
	Policies []backend.Policy
	Size     int     // how many calls it has
	Calls    []*Call // those that stand in the command when it is written
	Again    bool    // the script ran nothing, and wants the boundaries around its clock
	Now      int64   // that clock, where the group is sent again; else 0

	fields int // the script's argument before the names of the fields
}

// nobody stands for the calls of a group whose callers have all left: it only
// looks.
var nobody = []*Call{{}}

// Same reports whether two groups have the same list of policies, not only an
// equal one.
func (g *Group) Same(policies []backend.Policy) bool {
	return len(g.Policies) == len(policies) && &g.Policies[0] == &policies[0]
}

// run returns how many calls from the first on ask the same costs: the script
// decides them at the price of one.
func run(calls []*Call) int {
	n := 1
	for n < len(calls) && calls[0].sameCosts(calls[n]) {
		n++
	}
	return n
}

// isApart reports whether the policy's counts have a Redis key of their own.
func isApart(p *backend.Policy) bool { return p.Algorithm.Kind().Storage() == algo.StoredApart }
