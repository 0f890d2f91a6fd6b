package logs

import (
	"cmp"
	"slices"
)

// Call is one call that a log reports.
type Call struct {
	At    int64             // µs of the Unix epoch
	Took  int64             // µs, with Options.Duration
	Key   uint32            // a number of Stream.Keys
	Of    uint32            // a number of Stream.Uses
	Unit  uint32            // µs: the step of the log's clock
	Costs *[MostCosts]int64 // of the fields of Options.Costs; nil without
}

// MostCosts is the greatest number of fields of costs.
const MostCosts = 8

// order sorts the calls of a file that is sorted but for a bound. It keeps those that a later line
// may come before.
//
// Calls of one instant stay in the order of their lines. pending is sorted and fresh is not.
// fresh is merged when it is half as long as pending, so that each call is moved a few times only.
type order struct {
	bound   int64 // µs
	newest  int64
	late    int64 // calls that were older than the bound, and are left out
	latest  int64 // µs: how much before the newest the worst of them was
	pending []Call
	head    int // of pending: those before have left
	fresh   []Call
	sorted  bool // fresh is, and none of it comes before one of pending
}

// leastMerge is the number of calls from which on they are merged.
const leastMerge = 4096

// add takes a call, unless it is too old.
func (o *order) add(c *Call) {
	if behind := o.newest - c.At; behind > 0 {
		//mutant:unsorted-bound
		if behind > o.bound {
			o.late++
			o.latest = max(o.latest, behind)
			return
		}
		o.sorted = false
	} else {
		o.newest = c.At
	}
	o.fresh = append(o.fresh, *c)
}

// ready appends those calls that no later line can come before. At the end these are all.
func (o *order) ready(end bool, to []Call) []Call {
	if !end && len(o.fresh) < max(leastMerge, (len(o.pending)-o.head)/2) {
		return to
	}
	if !o.sorted {
		slices.SortStableFunc(o.fresh, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
		o.merge()
	} else {
		o.pending = append(o.pending, o.fresh...)
	}
	o.fresh, o.sorted = o.fresh[:0], true
	live := o.pending[o.head:]
	n := len(live)
	if !end {
		n, _ = slices.BinarySearchFunc(live, o.newest-o.bound+1, func(c Call, at int64) int { return cmp.Compare(c.At, at) })
	}
	to = append(to, live[:n]...)
	o.head += n
	if o.head*2 > len(o.pending) {
		o.pending = o.pending[:copy(o.pending, o.pending[o.head:])]
		o.head = 0
	}
	return to
}

// merge merges what is fresh into pending, from the back.
func (o *order) merge() {
	i := len(o.pending) - 1
	o.pending = append(o.pending, o.fresh...)
	at := len(o.pending) - 1
	for j := len(o.fresh) - 1; j >= 0; at-- {
		if i >= o.head && o.pending[i].At > o.fresh[j].At {
			o.pending[at] = o.pending[i]
			i--
			continue
		}
		o.pending[at] = o.fresh[j]
		j--
	}
}

// spread gives the calls of one instant of a coarse clock instants of their own, evenly over the
// step of the clock, in their order.
type spread struct {
	start bool // all are at the start of the step
	group []Call
}

// add takes a call in the order of time, and appends those of the instant before.
func (s *spread) add(c *Call, unit int64, to []Call) []Call {
	if unit <= 1 && len(s.group) == 0 {
		c.Unit = 1
		return append(to, *c)
	}
	if len(s.group) > 0 && s.group[0].At != c.At {
		to = s.flush(min(unit, c.At-s.group[0].At), to)
	}
	c.Unit = uint32(unit)
	s.group = append(s.group, *c)
	return to
}

// flush appends the calls of an instant, spread over a span of time. That is at most until the
// next instant, since the clock's step may turn out to be finer.
func (s *spread) flush(span int64, to []Call) []Call {
	n := int64(len(s.group))
	for i := range s.group {
		c := s.group[i]
		//mutant:spread-in-order
		if !s.start {
			c.At += int64(i) * span / n
		}
		to = append(to, c)
	}
	s.group = s.group[:0]
	return to
}
