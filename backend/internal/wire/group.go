// Package wire is the format in which calls travel to the Lua script and its
// answers come back. The comment of lua/decide.lua describes it. The package does
// no I/O.
//
// A call goes through these steps:
//
//		Ask ─► Set ─► Pack ─► the script ─► Read ─► Decide
//
//	  - Ask copies the request into the Call. From then on nothing is the caller's.
//	  - Set makes the arguments of a command out of its groups: stored keys, names of fields.
//	  - Pack writes what the groups ask into one argument, at the instant of the write.
//	  - Read parses the reply and computes the readings of each call. The script has decided
//	    the same from the same state: Go and Lua must agree exactly.
//	  - Decide turns the readings into the caller's Decision.
//
// Nothing here is safe for concurrent use. A Call and the Group that holds it belong to the
// round trip that sends them until the caller is notified. Instants are microseconds of the
// Unix epoch.
package wire

import (
	"cmp"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Call is what one call asks, and after Read what it met.
type Call struct {
	Err error // why nothing was decided

	lease    backend.Lease // of a Reserve, a Settle and an Extend; Actual stands in costs
	loan     backend.Loan  // of a Borrow
	costs    []int64       // one per policy, of a take; those of a shadow are of one call of it
	takes    int64         // of these costs, of which as many pass as fit: the run of an UpTo, else 1
	calls    int64         // of a run that each take is; 0: it is no run
	by       bool          // a shadow is charged by the call
	now      int64         // of the script
	readings []backend.Reading
	look     *Call // of a Settle that wants states: what it leaves; else nil
}

// Ask makes the call ask what r does of its i-th key. It keeps nothing of the caller's,
// who may leave and use its buffers for something else.
func (c *Call) Ask(r *backend.Request, i int) {
	g := r.GroupAt(i)
	c.Err, c.costs, c.takes, c.calls, c.by = nil, c.costs[:0], 1, 0, false
	for p := range g.Policies {
		c.costs = append(c.costs, g.CostOf(p))
	}
	if g.Run > 0 {
		c.ofRun(g)
	}
	if r.Loan != nil {
		c.loan = *r.Loan
		c.loan.Each = nil
	}
	if c.look = nil; r.Op.Ends() && g.Each != nil {
		c.look = &Call{costs: slices.Repeat([]int64{1}, len(g.Policies))}
	}
	if g.Lease == nil {
		return
	}
	c.lease = *g.Lease
	if r.Op.Ends() {
		for p := range c.costs {
			c.costs[p] = c.lease.ActualOf(g.Policies, p)
		}
		if c.lease.Actual != nil { // or it is one that cancels
			c.lease.Actual = c.costs
		}
	}
}

// ofRun makes the call a run. Without shadows, one that is not UpTo is sent as any other call.
func (c *Call) ofRun(g *backend.Group) {
	if g.UpTo {
		c.takes, c.calls = g.Run, 1
		return
	}
	c.calls = g.Run
	for p := range g.Policies {
		if g.Policies[p].Shadow {
			c.costs[p], c.by = c.costs[p]/g.Run, g.Run > 1
		}
	}
}

// Decide writes the answer to r, on the goroutine whose buffers r names. The others are
// what its second and later keys met.
func (c *Call) Decide(r *backend.Request, others []*Group, d *backend.Decision) error {
	switch {
	//mutant:no-answer-with-error
	case c.Err != nil:
	case r.Op.Held():
		c.look.left(r, d)
		d.Allowed = true
	case others != nil:
		readings := [][]backend.Reading{c.readings}
		for _, g := range others {
			readings = append(readings, g.Calls[0].readings)
		}
		r.DecideKeys(c.now, readings, d)
	default:
		r.Decide(c.now, c.readings, d)
	}
	if r.Op == backend.Borrow && c.Err == nil {
		r.Loan.Lent = c.loan.Lent
		copy(r.Loan.Each, c.loan.Each)
	}
	return c.Err
}

// left writes the states that a Settle has left. There are none if the look has failed, or
// found other boundaries of a Calendar than it was sent with: the Settle has run.
func (c *Call) left(r *backend.Request, d *backend.Decision) {
	switch {
	case c == nil:
	case len(c.readings) == 0:
		clear(r.Each)
	default:
		r.Group.Look().Decide(c.now, c.readings, d)
	}
}

// Group is the calls of one key for one operation by one list of policies, in
// their order.
type Group struct {
	Op        backend.Op
	Key       string // as the caller names it, for errors
	Tag       string // stands between the braces of the stored keys
	Policies  []backend.Policy
	Calls     []*Call  // those that stand in the command when it is written; never none
	Withdrawn bool     // all callers have left: the first call stands for them, and only looks
	Again     bool     // the script ran nothing, and wants the boundaries around its clock
	Now       int64    // that clock, where the group is sent again; else 0
	And       []*Group // of the same request; of its first group
	Else      bool     // it begins an alternative of the request
	Stops     bool     // as that of the request's group
	Joint     bool     // it is decided all or nothing with others
	Then      *Group   // a Peek right after a Settle that wants states; else nil

	fields int // the script's argument before the names of the fields
	keys   int // the number of its stored keys
}

// asks returns what the command asks for.
// It is a Peek if all callers have left: the group still has its place in the reply, but
// must not count anything.
func (g *Group) asks() backend.Op {
	//mutant:withdrawn-reset
	if g.Withdrawn {
		return backend.Peek
	}
	return g.Op
}

// alternatives returns the groups of the request, those of each alternative together. The order is
// that of the script's sections and of its reply. Leases to settle stand each by itself, and those
// of the first alternative come last.
func (g *Group) alternatives() [][]*Group {
	all := [][]*Group{{g}}
	for _, h := range g.And {
		if h.Else || g.Op.Ends() {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], h)
	}
	if g.Op.Ends() {
		slices.Reverse(all)
	}
	return all
}

// flat returns the groups, each with those of its request and those that are decided after it
// behind it. The order is that of the script's sections and of its reply. Most batches have neither
// kind, and are returned as they are.
func flat(groups []*Group) []*Group {
	if !slices.ContainsFunc(groups, func(g *Group) bool { return g.And != nil || g.Then != nil }) {
		return groups
	}
	var all []*Group
	for _, g := range groups {
		for _, together := range g.alternatives() {
			all = append(all, together...)
		}
		if g.Then != nil {
			all = append(all, g.Then)
		}
	}
	return all
}

// Follow makes the group of a Settle be followed by a look, if its call wants states. The
// script runs both in one piece, so no other call comes between.
func (g *Group) Follow(c *Call) {
	if g.Then = nil; c.look != nil {
		// The tag is the same, so both groups lie in one slot, and the section of the Peek
		// reads what the Settle has just written.
		g.Then = &Group{Op: backend.Peek, Key: g.Key, Tag: g.Tag, Policies: g.Policies, Calls: []*Call{c.look}}
	}
}

// Same reports whether two groups have the same list of policies, not only an
// equal one.
// The comparison is of pointers, since it runs once per call. Limiters that were made
// separately are not merged: their groups are correct, and cost the server more.
func (g *Group) Same(policies []backend.Policy) bool {
	return len(g.Policies) == len(policies) && &g.Policies[0] == &policies[0]
}

// run returns how many calls from the first on ask the same costs: the script
// decides them at the price of one.
//
// It does not depend on the order in which calls arrived otherwise. Equal calls that a
// different one separates are two runs.
func run(calls []*Call) int {
	n := 1
	for n < len(calls) && calls[0].single() && calls[n].single() && slices.Equal(calls[0].costs, calls[n].costs) {
		n++
	}
	return n
}

// single reports whether the script decides the call as one take, of whatever calls it is.
func (c *Call) single() bool { return c.takes == 1 && !c.by }

// Sort brings those together that likely make one section. These are the groups of one list
// of policies, and of those the ones that ask for one thing as many times. Calls of
// different keys come in no order. A section costs the server a third of what a
// group does. Unsorted, the 108 groups of 170 calls for Zipf-distributed keys made 28
// sections; sorted they make 8.
func Sort(groups []*Group) {
	//mutant:equal-takes-together
	slices.SortFunc(groups, func(g, h *Group) int {
		return cmp.Or(cmp.Compare(g.Policies[0].Name, h.Policies[0].Name), cmp.Compare(g.Op, h.Op), len(g.Calls)-len(h.Calls))
	})
}
