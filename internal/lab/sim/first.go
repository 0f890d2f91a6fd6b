package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// shapeFirst is that of alternatives among a script's arguments.
const shapeFirst = 8

// alternative is one part of a First as its caller lists it.
type alternative struct {
	keys  []string // decided all or nothing
	costs []int64  // of each
}

// first takes of the first part that has room, or reserves there and settles.
func (c *caller) first() {
	l, o := c.limiter(), outcome{verb: "first", op: backend.Take}
	var parts []headgate.Part
	for range 2 + c.dice.IntN(2) {
		a := alternative{[]string{c.key()}, c.costs()}
		part := l.Part(a.keys[0], a.costs...)
		if c.dice.IntN(4) == 0 {
			own, shared := c.pair()
			a.keys = []string{own, shared}
			part = l.Part(own, a.costs...)
			part.And = []headgate.Part{l.Part(shared, a.costs...)}
		}
		o.parts, parts = append(o.parts, a), append(parts, part)
	}
	if c.dice.IntN(3) > 0 {
		c.ask(o, func(ctx context.Context) (headgate.Decision, error) { return headgate.First(ctx, parts...) })
		return
	}
	lease := time.Duration(1+c.dice.IntN(5)) * time.Second
	for i := range parts {
		parts[i].Call.Lease = lease
	}
	o.op = backend.Reserve
	var rs headgate.Reservations
	o = c.ask(o, func(ctx context.Context) (d headgate.Decision, err error) {
		rs, d, err = headgate.ReserveFirst(ctx, parts...)
		return d, err
	})
	if o.err == nil && o.d.Allowed {
		c.settleFirst(rs, &o)
	}
}

// settleFirst settles the reservations of all parts, or leaves them.
func (c *caller) settleFirst(rs headgate.Reservations, o *outcome) {
	c.pause(time.Duration(c.dice.ExpFloat64() * float64(200*time.Millisecond)))
	settle := outcome{verb: "settle", op: backend.Settle, key: o.key}
	if o.d.Source != headgate.FromStore {
		settle.verb = "settle nothing"
	}
	switch n := c.dice.IntN(8); {
	case n < 4:
		actual := make([][]int64, len(rs))
		for i := range actual {
			actual[i] = c.costs()
		}
		c.ask(settle, func(ctx context.Context) (headgate.Decision, error) {
			return headgate.Decision{}, rs.Commit(ctx, actual...)
		})
	case n < 7:
		c.ask(settle, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, rs.Cancel(ctx) })
	case n < 8:
		return // the leases end by themselves
	}
	settle.verb = "close"
	c.ask(settle, func(context.Context) (headgate.Decision, error) { return headgate.Decision{}, rs.Close() })
}

// chose notes the part of which a decision is.
func (o *outcome) chose() {
	if o.parts == nil {
		return
	}
	a := o.parts[o.d.At]
	if o.key, o.and, o.costs = a.keys[0], "", a.costs; len(a.keys) > 1 {
		o.and = a.keys[1]
	}
}

// charges returns what a call charges each key of the i-th policy, if it passes. Of a First of
// which that is unknown each part may be charged.
func (o *outcome) charges(i int, unknown bool) map[string]int64 {
	all := map[string]int64{}
	for _, key := range o.keys() {
		all[key] = o.units(i)
	}
	for _, a := range o.parts {
		for _, key := range a.keys {
			if unknown {
				all[key] = max(all[key], a.costs[i])
			}
		}
	}
	return all
}

// pairs returns the two keys that a call charges at once, if it has two. Of a First of which that
// is unknown they are those of each part.
func (o *outcome) pairs(known bool) (all []joint) {
	if o.and != "" && (known || o.parts == nil) {
		all = append(all, jointOf(o.by.number, o.key, o.and))
	}
	for _, a := range o.parts {
		if len(a.keys) > 1 && !known {
			all = append(all, jointOf(o.by.number, a.keys[0], a.keys[1]))
		}
	}
	return all
}

// firsts reads alternatives, those that are decided together as one list. Leases to settle come in
// reverse order.
func (a *arguments) firsts(n int) *asked {
	op := backend.Op(a.byte())
	keys, recorded, size := a.short(), a.short(), a.long()
	flags := a.take(n)
	if keys > len(a.keys) || size > len(a.blob) || n < 2 {
		a.err = errScript
		return &asked{}
	}
	rest, left := len(a.blob)-size, len(a.keys)-keys
	var all []*asked
	for i := range n {
		var together []*asked
		switch groups, shape := a.short(), a.byte(); shape {
		case shapeJoint:
			one := a.joint(groups)
			together, one.with = append([]*asked{one}, one.with...), nil
		default:
			together = a.section(groups, shape)
		}
		if len(together) == 0 || a.err != nil {
			a.err = errScript
			return &asked{}
		}
		together[0].other, together[0].stops = i > 0, flags[i] > 0
		all = append(all, together...)
	}
	if rest != len(a.blob) || left != len(a.keys) { // where what is left would be skipped to
		a.err = errScript
	}
	if op.Ends() {
		slices.Reverse(all)
		for i, g := range all {
			g.other = i >= recorded
		}
	}
	all[0].first, all[0].with = true, all[1:]
	return all[0]
}

// alternatives returns the groups of a First, those of each alternative together.
func alternatives(all []*asked) (as [][]*asked) {
	for i, g := range all {
		if i == 0 || g.other {
			as = append(as, nil)
		}
		as[len(as)-1] = append(as[len(as)-1], g)
	}
	return as
}

// decideFirst looks at one alternative after the other, as the script does. The memory store then
// decides all of them at once, and its counts show whether it has charged the one that had room.
func (s *state) decideFirst(all []*asked) (answer []byte) {
	if all[0].op.Ends() {
		if err := s.askFirst(all, nil); err != nil {
			return []byte(strings.Repeat(string(letter(err)), len(all)))
		}
		return make([]byte, len(all))
	}
	var charged []*asked
	for _, together := range alternatives(all) {
		room := true
		for _, g := range together {
			met := s.met(g)
			each, err := s.ask(g, g.runs[0].costs, backend.Peek, nil)
			if err != nil {
				return letter(err)
			}
			answer = append(answer, append(met, s.retries(g, g.runs[0].costs, each)...)...)
			room = room && g.fits(each)
		}
		if room {
			charged = together
			break
		}
	}
	if all[0].op == backend.Peek { // its callers have left
		return answer
	}
	if err := s.askFirst(all, charged); err != nil {
		return []byte(strings.Repeat(string(letter(err)), len(alternatives(all)[0])))
	}
	return answer
}

// fits reports whether all policies but shadows had room.
func (g *asked) fits(each []backend.State) bool {
	for i := range each {
		if !g.policies[i].Shadow && each[i].RetryAfter > 0 {
			return false
		}
	}
	return true
}

// askFirst decides all alternatives in one request, and notes what each was charged. That must be
// the costs of those groups, and nothing of the others.
func (s *state) askFirst(all, charged []*asked) error {
	before := s.counts(all)
	r := backend.Request{Op: all[0].op}
	for i, g := range all {
		one := group(g, nil)
		one.Else, one.Stops = g.other && i > 0, g.stops
		if len(g.runs) > 0 {
			one.Costs = g.runs[0].costs
		}
		if i == 0 {
			r.Group = one
		} else {
			r.And = append(r.And, one)
		}
	}
	var d backend.Decision
	if err := s.store.Do(background, &r, &d); err != nil || r.Op.Ends() {
		return err
	}
	for i, g := range all {
		end := done{costs: g.runs[0].costs, passed: slices.Contains(charged, g), each: r.GroupAt(i).Each}
		g.done = []done{end}
		for p := range g.policies {
			if at := (count{g.tag, identity(g.policies[p])}); end.passed && !g.policies[p].Shadow {
				before[at] += end.costs[p]
			}
		}
	}
	for at, used := range s.counts(all) {
		if used != before[at] {
			all[0].wrong = fmt.Errorf("%s of %s: %d units are used, %d should be; passed: %v, of %d groups by that at %d", at.policy, at.key, used, before[at], d.Allowed, len(all), d.At)
		}
	}
	if d.Allowed != (charged != nil) || d.Allowed && !slices.Contains(charged, all[d.At]) {
		all[0].wrong = fmt.Errorf("passed: %v, by the group at %d of %d", d.Allowed, d.At, len(all))
	}
	return nil
}

// counts returns the units that the counts of groups have now, without those of shadows.
func (s *state) counts(all []*asked) map[count]int64 {
	units := map[count]int64{}
	for _, g := range all {
		for _, p := range g.policies {
			if !p.Shadow {
				units[count{g.tag, identity(p)}] = s.view(g.tag, p).Used
			}
		}
	}
	return units
}

// firstInTurn looks at what a First was answered by the store. Each part before the one that was
// charged, and each of a denied call, had a count without room.
//
// What is lent is full sooner than its count. On a cluster a part is passed over that was certainly
// not counted.
func (w *World) firstInTurn() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		// If no store decides, the first part's denial stands, and no other part is decided.
		known := o.d.Source == headgate.FromStore || o.d.Source == headgate.FromDenyCache && !o.stood() && !o.bounded && !w.excused(o)
		switch {
		case o.parts == nil || o.err != nil || o.d.Err != nil || !known || w.plan.Borrow > 0 || err != nil:
			return
		case w.plan.Cluster && (w.plan.Far || o.bounded || w.plan.has("late") || w.plan.has("crowd") || w.excused(o)):
			return
		}
		for i, a := range o.parts {
			if i == o.d.At && o.d.Allowed {
				return
			}
			if w.fits(o, a) {
				err = fmt.Errorf("%w; %v had room", o.at(c), a)
			}
		}
	})
	return err
}

// fits reports whether all counts of a part had room at each instant of a call.
func (w *World) fits(o *outcome, a alternative) bool {
	for i, p := range o.policies() {
		for _, key := range a.keys {
			if !p.Shadow && !w.room(o, key, p, a.costs[i]) {
				return false
			}
		}
	}
	return true
}
