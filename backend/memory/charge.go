package memory

import "github.com/headgate-go/headgate/backend"

// charges reports whether a call that is no take charges, where all policies have room
// for its costs or not.
func (c *call) charges(looks []look, fits bool) bool {
	switch c.op {
	case backend.Reserve:
		return fits
	case backend.Record:
		return true
	case backend.AtMost:
		return c.room(looks)
	}
	return false
}

// charge charges one policy of a call that is no take, and returns the words.
func (c *call) charge(l *look, i int) []int64 {
	a, n := &c.Policies[i].Algorithm, c.CostOf(i)
	switch {
	case a.Kind().Leased():
		return a.Hold(l.words, &l.view, c.now+c.lease.Length.Microseconds(), halves(c.lease.ID)[1])
	case c.op == backend.Record:
		n = a.Recorded(&l.view, n)
	}
	return a.Take(l.words, &l.view, n)
}

// room makes an AtMost a take of what there is, and reports whether there is any: a
// take of one unit is denied otherwise.
func (c *call) room(looks []look) bool {
	g := *c.Group
	for i := range looks {
		g.Cost = min(g.Cost, c.Policies[i].Algorithm.Max()-looks[i].view.Used)
	}
	some := g.Cost > 0
	g.Cost = max(g.Cost, 1)
	c.Group = &g
	return some
}
