package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// invariants are what holds in every run, each with its sentence of the specification. The
// workloads of a plan have more.
var invariants = []holds{
	{"A charge is made at most once. A call that was not counted was not charged, and one that the store passed was.", (*World).countsOnce},
	{"Every decision ends within the store's budget.", (*World).withinBudget},
	{"A healthy node decides.", (*World).healthyDecides},
	{"A lone caller of a server that is 80 ms away is decided within a second, from nothing.", (*World).loneIsDecided},
	{"What can't be back within its budget is not sent.", (*World).sentInTime},
	{"What can't be back before its context ends is not sent.", (*World).shortNotSent},
	{"Numbers that nobody counted are never shown as counted.", (*World).showsCounted},
	{"Of the failure modes of one decision the strictest wins.", (*World).modesDecide},
	{"Used, Remaining and ResetAfter are those after the call.", (*World).showsItsOwn},
	{"Never more than the limit.", (*World).neverAbove},
	{"A denied call had no room.", (*World).deniedForWant},
	{"A denial is a value. An error means a wrong call.", (*World).errorsAreDue},
	{"Unused counts expire by themselves.", (*World).countsExpire},
	{"After Close no connection is left.", (*World).nothingLeft},
}

// judge checks all invariants at the end of a run. Another one is that no goroutine is
// left: the bubble ends with all of them. And while a run goes on, a circuit opens only for
// a faulty node; see opened.
func (w *World) judge() {
	w.events.Lock()
	defer w.events.Unlock()
	var all []holds
	for _, f := range w.plan.Workloads {
		all = append(all, f.rules...)
	}
	for _, r := range append(all, invariants...) {
		if err := r.check(w); err != nil {
			w.fail(r.name, err)
		}
	}
}

// outcomes calls f with every call of the fleet.
func (w *World) outcomes(f func(c *caller, o *outcome)) {
	for _, p := range w.procs {
		for _, c := range p.callers {
			for i := range c.calls {
				f(c, &c.calls[i])
			}
		}
	}
}

// countsOnce compares what the nodes charged with what callers received.
func (w *World) countsOnce() (err error) {
	told, perhaps := map[account]int64{}, map[account]int64{}
	w.outcomes(func(c *caller, o *outcome) {
		if !o.op.Charges() {
			return
		}
		for p, policy := range o.policies() {
			unknown := o.perhaps() || o.stood() || o.verb == "named" || o.and != "" && !o.atOnce()
			for key, units := range o.charges(p, unknown) {
				a := account{c.process.number, key, identity(policy), o.op}
				if o.op == backend.AtMost { // which the nodes count as what it is
					a.op = backend.Take
					perhaps[a] += o.most - o.units(p) // a spread key's last request may be lost
				}
				switch {
				case policy.Shadow:
				case unknown:
					perhaps[a] += max(units, 4)
				case o.err == nil && o.d.Allowed && o.d.Source == headgate.FromStore:
					told[a] += units
				}
			}
		}
	})
	err = w.ledger.lacks(told)
	for a, n := range w.ledger.sums {
		if w.uncounted(a) {
			continue
		}
		if most := told[a] + perhaps[a]; n > most && err == nil {
			err = fmt.Errorf("%+v: %d units were charged, %d passed and %d perhaps", a, n, told[a], perhaps[a])
		}
	}
	return err
}

// uncounted reports whether no bound holds for what was charged to an account. What several keys
// of a cluster reserved is given back if one of them denies.
func (w *World) uncounted(a account) bool {
	return a.op == backend.Reserve && w.plan.Cluster && (w.plan.has("all") || w.plan.has("wait all") || w.plan.has("first"))
}

// atOnce reports whether one store decided a call of several keys by one script.
func (o *outcome) atOnce() bool {
	return !o.by.world.plan.Cluster && o.err == nil && o.d.Source == headgate.FromStore && o.d.Known == backend.Exact
}

// spread reports whether a policy's keys have sub-keys.
func (w *World) spread(name string) bool {
	found := false
	w.plan.policies(func(p headgate.Policy) { found = found || identity(p) == name })
	return found && w.plan.Shards > 1
}

// units returns what a call takes of its i-th policy, if it passes.
func (o *outcome) units(i int) int64 {
	switch {
	case o.op == backend.AtMost:
		return o.d.Passed
	case o.costs == nil:
		return 1
	}
	return o.costs[i]
}

// withinBudget allows what waits no longer than a decision may.
func (w *World) withinBudget() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if took := o.end.Sub(o.begin); took > budget && !o.waits() && o.op != backend.Settle && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// budget is that of the stores.
const budget = 100 * time.Millisecond

// waitsInOrder compares those that waited for one key in one process.
func (w *World) waitsInOrder() (err error) {
	for _, p := range w.procs {
		byKey := map[string][]*outcome{}
		for _, c := range p.callers {
			for i := range c.calls {
				if o := &c.calls[i]; o.verb == "wait" && o.err == nil && o.d.Source == headgate.FromStore {
					byKey[o.key] = append(byKey[o.key], o)
				}
			}
		}
		for key, all := range byKey {
			slices.SortFunc(all, func(a, b *outcome) int { return a.begin.Compare(b.begin) })
			for i := 1; i < len(all); i++ {
				if a, b := all[i-1], all[i]; b.end.Before(a.end) && err == nil {
					err = fmt.Errorf("process %d, %s: the call at %v passed at %v, the one at %v at %v", p.number, key,
						a.begin.Sub(w.start), a.end.Sub(w.start), b.begin.Sub(w.start), b.end.Sub(w.start))
				}
			}
		}
	}
	return err
}

// neverAbove sums what was admitted in windows without a loss of counts or a step of a clock.
// Of two limits of one count the higher one is the bound.
func (w *World) neverAbove() error {
	var err error
	w.plan.policies(func(policy headgate.Policy) {
		a := policy.Algorithm
		window := a.Limit().Period
		lends := w.plan.Borrow > 0 && w.plan.Shards == 0
		if a.Kind().Leased() || policy.Shadow && !lends || w.plan.higher(policy) {
			return
		}
		for c, all := range w.ledger.events {
			if c.policy != identity(policy) {
				continue
			}
			all = w.withLent(c, all)
			most := w.ledger.most(all, window, w.plan.Shards == 0 && w.plan.Borrow == 0 && !inWindows(a.Kind()))
			if in := aligned(all, window); most > a.Worst(window) || a.Kind() == rule.KindFixedWindow && in > a.Max() {
				err = cmp.Or(err, fmt.Errorf("%s of %s: %d units in %v, %d in a window of the clock, by %v", c.policy, c.key, most, window, in, &a))
			}
		}
	})
	return err
}

// inWindows reports whether an algorithm counts in windows of the clock. What a Record charges
// above the limit in one window is no reason to deny in the next one.
func inWindows(k rule.Kind) bool {
	return k == rule.KindFixedWindow || k == rule.KindSlidingWindow || k == rule.KindBucketedWindow || k == rule.KindCalendar
}

// room reports whether a policy had room for a call at each instant of it. The span is longer
// than the period, because a count may be an estimate, and a bucket has to fill.
func (w *World) room(o *outcome, key string, p headgate.Policy, units int64) bool {
	a := p.Algorithm
	if a.Kind().Queues() { // a unit that others are behind is not given back
		return false
	}
	span := 2*a.Limit().Period + longestStep + time.Second // after a step back counts last longer
	if a.Kind() == rule.KindCalendar {
		span = o.begin.Sub(w.start) + time.Second
	}
	from := o.begin.Add(-span)
	return !w.ledger.disturbed(from, o.end) && w.ledger.sum(count{key, identity(p)}, from, o.end)+units <= a.Max()
}

// waitsForWant looks at calls that waited until their deadline, or were refused for it. What is
// lent or spread is full sooner than its count.
func (w *World) waitsForWant() (err error) {
	if w.plan.Borrow > 0 || w.plan.has("spread") {
		return nil
	}
	w.outcomes(func(c *caller, o *outcome) {
		late := o.end.Equal(o.begin) || o.end.Sub(o.begin) >= 2*budget // refused at once, or with time for a second try
		switch {
		case !o.waits() || o.cancelled || !errors.Is(o.err, context.DeadlineExceeded) || o.begin.Sub(w.start) < calm || !late:
			return
		case w.plan.crowded(), w.plan.Far && errors.Is(o.err, headgate.ErrUnavailable), w.behind(c, o): // see healthyDecides
			return
		}
		if !w.full(o) && !w.troubled(c.process.number, "", o.begin.Add(-calm), o.end) && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// full reports whether a count had no room for a call that waited, or for one before it in its
// queue. That one may wait for any other key.
func (w *World) full(o *outcome) bool {
	keys := o.keys()
	if w.plan.has("wait all") {
		keys = nil
		for i := range w.plan.Keys {
			keys = append(keys, keyName(i))
		}
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		return slices.ContainsFunc(o.policies(), func(p headgate.Policy) bool { return !p.Shadow && !w.room(o, key, p, 1) })
	})
}

// behind reports whether a call over a far link was the head of its queue for too short a time
// for two tries. No store decided a try of the head before it. That one pauses for as long as
// its failure mode says, and those behind it send nothing meanwhile. If the link leaves no time
// for a script after a connection has begun, that is no fault.
func (w *World) behind(c *caller, o *outcome) bool {
	return w.plan.Far && slices.ContainsFunc(c.process.callers, func(b *caller) bool {
		return slices.ContainsFunc(b.calls, func(h outcome) bool {
			ahead := h.waits() && h.key == o.key && h.begin.Before(o.begin) && o.end.Sub(h.end) < 2*budget
			paused := h.err == nil && h.end.Sub(h.begin) >= 2*budget // the key had room meanwhile
			return ahead && (paused || errors.Is(h.err, headgate.ErrUnavailable))
		})
	})
}

// deniedForWant looks at denials by the store and the deny cache. The policy that a denial
// names must have had no room for the call.
//
// What is lent or spread is full sooner than its count.
func (w *World) deniedForWant() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if o.verb != "do" || w.plan.Borrow > 0 || w.plan.has("spread") || o.err != nil || o.d.Allowed || err != nil {
			return
		}
		if o.d.Source != headgate.FromStore && o.d.Source != headgate.FromDenyCache {
			return
		}
		for i, policy := range o.policies() {
			a := policy.Algorithm
			if policy.Name == o.d.Policy && w.room(o, o.key, policy, o.units(i)) {
				err = fmt.Errorf("%s at %v: %v, by %v", c.name, o.begin.Sub(w.start), o, &a)
			}
		}
	})
	return err
}

// errorsAreDue looks at errors that no call of a fleet should get.
func (w *World) errorsAreDue() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		due := []error{nil, headgate.ErrUnavailable, headgate.ErrPerhapsCounted}
		switch {
		case o.cancelled:
			due = append(due, context.Canceled, context.DeadlineExceeded) // of a Wait
		case o.bounded:
			due = append(due, context.DeadlineExceeded)
		}
		if o.op == backend.Settle || o.verb == "named" { // sent before a settlement
			due = append(due, headgate.ErrNotHeld, headgate.ErrLeaseEnded)
		}
		known := func(e error) bool { return errors.Is(o.err, e) }
		if !slices.ContainsFunc(due, known) && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// leasesEnd looks for slots that are held when every lease has ended.
func (w *World) leasesEnd() error {
	for _, policy := range w.plan.Lists[slots] {
		if !policy.Algorithm.Kind().Leased() {
			continue
		}
		for _, n := range w.primaries() {
			for tag, s := range n.keeps.byTag {
				for k := range w.plan.Keys {
					if used := s.used(keyName(k), policy, n.clock()); used > 0 {
						return fmt.Errorf("%d slots of %s at %s (%q)", used, keyName(k), n.addr, tag)
					}
				}
			}
		}
	}
	return nil
}

func (w *World) nothingLeft() error {
	for _, n := range w.nodes {
		for _, c := range n.conns {
			return fmt.Errorf("%d at %s, such as %s#%d of process %d, dialled at %v, closed: %v", len(n.conns), n.addr, c.addr, c.mu.number, c.proc, c.born.Sub(w.start), c.mu.closed)
		}
	}
	return nil
}

// decisions returns how many the fleet made, and how many of them from leases. Settles and
// Resets are none.
func (w *World) decisions() (n, lent int) {
	w.outcomes(func(_ *caller, o *outcome) {
		if o.op == backend.Settle || o.op == backend.Reset {
			return
		}
		if n++; o.d.Source == headgate.FromLoan {
			lent++
		}
	})
	return n, lent
}
