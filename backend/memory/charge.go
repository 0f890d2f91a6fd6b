package memory

import "github.com/headgate-go/headgate/backend"

// charges reports whether a call that is no take charges. Of an AtMost it sets how
// many units pass.
func (c *call) charges(looks []look) bool {
	switch c.op {
	case backend.Record:
		return true
	case backend.AtMost:
		c.granted = c.Cost
		for i := range looks {
			c.granted = min(c.granted, c.Policies[i].Algorithm.Max()-looks[i].view.Used)
		}
		if c.granted > 0 {
			return true
		}
		c.granted = 1 // which is asked for, and denied
		return false
	}
	return c.op == backend.Reserve && c.fit(looks)
}

func (c *call) fit(looks []look) bool {
	for i := range looks {
		if !c.Policies[i].Algorithm.Fits(&looks[i].view, c.CostOf(i)) {
			return false
		}
	}
	return true
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

// grant writes what an AtMost granted.
func (c *call) grant(d *backend.Decision) {
	if !d.Allowed {
		return
	}
	d.Granted = c.granted
	if d.Receipt != nil {
		d.Receipt.Cost = c.granted
	}
}
