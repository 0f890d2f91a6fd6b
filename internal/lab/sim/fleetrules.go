package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// withLent returns the events of a count with the calls that processes have decided from
// units that they held in advance. Such a call is charged later, and counts when it passed.
// Where a node has lost its counts, or its clock has stepped, what was lent before is used for
// as long as it lasts, above the limit. No call of that time counts.
func (w *World) withLent(c count, all []charge) []charge {
	if w.plan.Borrow == 0 || !strings.HasPrefix(c.key, "b") {
		return all
	}
	all = slices.Clone(all)
	w.outcomes(func(by *caller, o *outcome) {
		if o.d.Source != headgate.FromLease || o.key != c.key {
			return
		}
		if w.ledger.disturbed(o.end.Add(-w.plan.Borrow), o.end) {
			return
		}
		losses := sort.Search(len(w.ledger.losses), func(i int) bool { return w.ledger.losses[i].After(o.end) })
		for i, p := range by.policies() {
			if identity(p) == c.policy {
				all = append(all, charge{at: o.end, units: o.units(i), loss: losses})
			}
		}
	})
	slices.SortStableFunc(all, func(a, b charge) int { return a.at.Compare(b.at) })
	return all
}

// showsCounted looks at the answers of failure modes that count nothing.
func (w *World) showsCounted() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		mode := o.d.Source == headgate.FromFailOpen || o.d.Source == headgate.FromFailClosed
		if o.err == nil && mode && (!o.d.Estimated || o.d.Counted) && err == nil {
			err = fmt.Errorf("%s at %v: %v: estimated %v, counted %v", c.name, o.begin.Sub(w.start), o, o.d.Estimated, o.d.Counted)
		}
	})
	return err
}

// modesDecide looks at the answers of failure modes that count nothing.
func (w *World) modesDecide() (err error) {
	closed := func(p headgate.Policy) bool { return !p.Shadow && p.OnFailure == headgate.FailClosed }
	w.outcomes(func(c *caller, o *outcome) {
		wrong := o.d.Source == headgate.FromFailClosed && o.d.Allowed
		if o.d.Source == headgate.FromFailOpen {
			wrong = !o.d.Allowed || slices.ContainsFunc(c.policies(), closed)
		}
		if o.err == nil && wrong && err == nil {
			err = fmt.Errorf("%s at %v: %v", c.name, o.begin.Sub(w.start), o)
		}
	})
	return err
}

// showsItsOwn looks at the numbers of calls that passed. The units of the call are used, and
// do not remain.
func (w *World) showsItsOwn() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if o.verb != "do" || o.err != nil || !o.d.Allowed || o.d.Source != headgate.FromStore || err != nil {
			return
		}
		for i, policy := range c.policies() {
			n := o.units(i)
			if policy.Name == o.d.Policy && (o.d.Used < n || o.d.Remaining > o.d.Limit-n || o.d.ResetAfter <= 0) {
				err = fmt.Errorf("%s at %v: %v: used %d, remaining %d, reset after %v", c.name, o.begin.Sub(w.start), o, o.d.Used, o.d.Remaining, o.d.ResetAfter)
			}
		}
	})
	return err
}

// slotsAreFew counts the slots of a key that callers hold at an instant, each from the answer
// of its Reserve until its settle, its lease's end or a loss of counts.
func (w *World) slotsAreFew() error {
	type step struct {
		at time.Time
		n  int64
	}
	steps, most := map[count][]step{}, map[count]int64{}
	w.outcomes(func(c *caller, o *outcome) {
		until := o.held
		for _, loss := range w.ledger.losses {
			if loss.After(o.begin) {
				until = earlier(until, loss)
			}
		}
		if o.err != nil || o.d.Source != headgate.FromStore || !until.After(o.end) {
			return
		}
		for i, p := range c.policies() {
			if p.Algorithm.Kind().Leased() && !p.Shadow {
				k := count{o.key, identity(p)}
				steps[k] = append(steps[k], step{o.end, o.costs[i]}, step{until, -o.costs[i]})
				most[k] = p.Algorithm.Max()
			}
		}
	})
	for k, all := range steps {
		slices.SortFunc(all, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.n, b.n)) })
		held := int64(0)
		for _, s := range all {
			if held += s.n; held > most[k] {
				return fmt.Errorf("%s: %d slots of %d at %v", k.key, held, most[k], s.at.Sub(w.start))
			}
		}
	}
	return nil
}

// allCharged compares what passed of All on one server with what its keys were charged.
func (w *World) allCharged() error {
	told := map[account]int64{}
	w.outcomes(func(c *caller, o *outcome) {
		if w.plan.Cluster || o.verb != "all" || o.err != nil || !o.d.Allowed || o.d.Source != headgate.FromStore || o.d.Estimated {
			return
		}
		for _, policy := range c.policies() {
			if policy.Shadow || policy.Shards > 1 {
				return // a key that is spread may be decided by a failure mode
			}
		}
		for _, policy := range c.policies() {
			told[account{c.process.number, o.key, identity(policy), backend.Take}]++
			told[account{c.process.number, o.and, identity(policy), backend.Take}]++
		}
	})
	return w.ledger.lacks(told)
}

// settlesReach compares the settles of reservations that a store decided with those that
// the nodes received.
func (w *World) settlesReach() error {
	told := map[int]int{}
	w.outcomes(func(c *caller, o *outcome) {
		if o.verb == "settle" && o.err == nil {
			told[c.process.number]++
		}
	})
	for proc, n := range told {
		if received := w.ledger.settles[proc]; received < n {
			return fmt.Errorf("process %d: %d settles returned nil, the nodes received %d", proc, n, received)
		}
	}
	return nil
}

// looksForCallers compares the requests that only looked at a key of the first list with the
// calls that did. A request that is written when its caller has left only looks. It is a
// rare one: it stands beside those of others.
func (w *World) looksForCallers() (err error) {
	calls, looks := map[int]int{}, map[int]int{}
	w.outcomes(func(c *caller, o *outcome) {
		if c.list == 0 {
			calls[o.by.number]++
			if o.op == backend.Peek {
				looks[o.by.number]++
			}
		}
	})
	for proc, n := range w.ledger.looks {
		if left := n - looks[proc]; left > 1+calls[proc]/100 && err == nil {
			err = fmt.Errorf("process %d: %d requests for callers that had left, of %d calls", proc, left, calls[proc])
		}
	}
	return err
}

// allAtOnce looks for reservations of keys that only All is called for.
func (w *World) allAtOnce() error {
	for a, n := range w.ledger.sums {
		if !w.plan.Cluster && a.op == backend.Reserve && !a.counted() {
			return fmt.Errorf("%+v: %d units were reserved", a, n)
		}
	}
	return nil
}

// recordsFill looks at the calls of keys of which the whole limit was recorded a moment
// before. A window may have ended in between, and a bucket may have leaked, so those say
// nothing.
func (w *World) recordsFill() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		stays := func(p headgate.Policy) bool { return !p.Shadow && stays(p.Algorithm, o.end.Sub(o.begin)+budget) }
		passed := o.verb == "after" && o.err == nil && o.d.Allowed && o.d.Source == headgate.FromStore
		if !passed || err != nil || !slices.ContainsFunc(c.policies(), stays) {
			return
		}
		before := o.begin.Add(-time.Second)
		troubled := w.troubled(c.process.number, "", before, o.end) || w.troubled(o.by.number, "", before, o.end)
		if !troubled && !w.ledger.disturbed(before, o.end) {
			err = fmt.Errorf("%s at %v: %v", c.name, o.begin.Sub(w.start), o)
		}
	})
	return err
}

// stays reports whether no unit of a full count leaves within a time that is shorter than the
// period. Of a bucket some may, but fewer than two of each of four sub-keys: the call costs three.
func stays(a algo.Algorithm, within time.Duration) bool {
	switch l := a.Limit(); a.Kind() {
	case algo.KindTokenBucket:
		return time.Duration(l.Events)*within < 8*l.Period
	case algo.KindSlidingLog, algo.KindCompactLog, algo.KindBucketedWindow:
		return true
	}
	return false
}
