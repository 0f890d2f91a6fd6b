package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// withLent returns the events of a count with the calls that processes have decided from units
// that they held in advance. Such a call is charged later, and counts when it passed. A node may
// have lost its counts, or its clock may have stepped. Then what was lent before is used for as
// long as it lasts, above the limit. No call of that time counts.
func (w *World) withLent(c count, all []charge) []charge {
	if w.plan.Borrow == 0 {
		return all
	}
	all = slices.Clone(all)
	w.outcomes(func(_ *caller, o *outcome) {
		if o.d.Source != headgate.FromLoan || o.key != c.key {
			return
		}
		if w.ledger.disturbed(o.end.Add(-w.plan.Borrow), o.end) {
			return
		}
		losses := sort.Search(len(w.ledger.losses), func(i int) bool { return w.ledger.losses[i].After(o.end) })
		for i, p := range o.policies() {
			if identity(p) == c.policy && (!p.Shadow || o.each != nil && o.each[i].RetryAfter == 0) {
				all = append(all, charge{at: o.end, units: o.units(i), loss: losses})
			}
		}
	})
	slices.SortStableFunc(all, func(a, b charge) int { return a.at.Compare(b.at) })
	return all
}

// roomForAll looks at the calls that a store passed beside lent units. The count of each has
// room for what was charged and used until then, whatever the limit of those who used it. It
// includes every Record, which may be above the limit.
func (w *World) roomForAll() (err error) {
	w.plan.policies(func(p headgate.Policy) {
		if w.plan.Shards > 0 || p.Algorithm.Kind().Leased() || w.plan.higher(p) || err != nil {
			return
		}
		for c, all := range w.ledger.events {
			if c.policy != identity(p) {
				continue
			}
			if e, n := passedAbove(&p.Algorithm, w.withLent(c, all)); n > e.limit {
				err = fmt.Errorf("%s of %s at %v: %d units count, a call passed by a limit of %d", c.policy, c.key, e.at.Sub(w.start), n, e.limit)
			}
		}
	})
	return err
}

// passedAbove returns the first call that passed above its limit, and what the count was with it.
// The count is the least one that the algorithm allows: each call is charged at its own instant.
func passedAbove(a *algo.Algorithm, all []charge) (at charge, n int64) {
	var slot, before, cur, oldest int64 // slots are windows of the clock
	level := 0.0                        // units of a bucket that are used
	period := a.Limit().Period.Microseconds()
	for i, e := range all {
		now := e.at.UnixMicro()
		if i > 0 && e.loss != all[i-1].loss {
			slot, before, cur, level, oldest = 0, 0, 0, 0, int64(i)
		}
		switch a.Kind() {
		case rule.KindFixedWindow, rule.KindSlidingWindow:
			if e.loss > 0 {
				return charge{}, 0 // a clock may have stepped
			}
			if next := now / period; next != slot {
				if before = 0; next == slot+1 {
					before = cur
				}
				slot, cur = next, 0
			}
			cur += e.units
			if n = cur; a.Kind() == rule.KindSlidingWindow {
				n += before * (period - now%period) / period
			}
		case rule.KindTokenBucket, rule.KindLeakyQueue:
			level = max(0, level-e.at.Sub(all[max(i-1, 0)].at).Seconds()*float64(a.Limit().Events)/a.Limit().Period.Seconds()) + float64(e.units)
			n = int64(math.Ceil(level - waits(a) - 0.01))
		default:
			for cur += e.units; all[oldest].at.UnixMicro()+period <= now; oldest++ {
				cur -= all[oldest].units
			}
			n = cur
		}
		if e.limit > 0 && e.units > 0 && n > e.limit {
			return e, n
		}
	}
	return charge{}, 0
}

// waits returns how many units of a LeakyQueue wait at most.
func waits(a *algo.Algorithm) float64 {
	if !a.Kind().Queues() {
		return 0
	}
	_, delay, _, _, _ := a.Numbers(0)
	return float64(delay) / 1e6 * float64(a.Limit().Events) / a.Limit().Period.Seconds()
}

// higher reports whether another policy of the fleet has the same count and a higher limit.
func (p *Plan) higher(than headgate.Policy) (found bool) {
	p.policies(func(policy headgate.Policy) {
		found = found || identity(policy) == identity(than) && policy.Algorithm.Max() > than.Algorithm.Max()
	})
	return found
}

// withheld returns the counts for which the store denied a call of several units, although it
// fits if nothing is lent.
func (o *outcome) withheld() (all []count) {
	if o.err != nil || o.d.Allowed || o.d.Source != headgate.FromStore || o.each == nil {
		return nil
	}
	for i, p := range o.policies() {
		s, n := &o.each[i], o.units(i)
		if !p.Shadow && o.by.world.plan.Shards == 0 && n > 1 && s.RetryAfter > 0 && s.Used-s.Lent+n <= s.Limit {
			all = append(all, count{o.key, identity(p)})
		}
	}
	return all
}

// recalls looks at calls of several units that were denied only for lent units, and that their
// caller asked again before long. Such a denial recalls the loans, so all denials of one row lie
// in one T, whatever is lost meanwhile. They lie in three beside a process that is late. A row ends when such
// a call of the caller passes.
func (w *World) recalls() (err error) {
	type row struct {
		count
		caller *caller
	}
	first, last, most := map[row]*outcome{}, map[row]*outcome{}, w.plan.Borrow
	if w.plan.has("late") {
		most *= rule.MaxTerms
	}
	w.outcomes(func(c *caller, o *outcome) {
		if o.err == nil && o.d.Allowed && o.units(0) > 1 {
			for _, p := range o.policies() {
				delete(first, row{count{o.key, identity(p)}, c})
			}
		}
		for _, k := range o.withheld() {
			k := row{k, c}
			if f, l := first[k], last[k]; f == nil || o.end.Sub(l.begin) >= w.plan.Borrow || w.ledger.disturbed(l.begin, o.end) {
				first[k] = o
			}
			last[k] = o
			if lasts := o.begin.Sub(first[k].end); lasts > most && err == nil {
				err = fmt.Errorf("%s of %s at %v: %v after %v", k.policy, k.key, o.begin.Sub(w.start), o, lasts)
			}
		}
	})
	return err
}

// showsCounted looks at the answers of failure modes that count nothing.
func (w *World) showsCounted() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		mode := o.d.Source == headgate.FromFailOpen || o.d.Source == headgate.FromFailClosed
		if o.err == nil && mode && o.d.Known != backend.NotCounted && err == nil {
			err = fmt.Errorf("%s at %v: %v: %v", c.name, o.begin.Sub(w.start), o, o.d.Known)
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
			wrong = !o.d.Allowed || slices.ContainsFunc(o.policies(), closed)
		}
		if o.err == nil && wrong && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// showsItsOwn looks at the numbers of calls that passed. The units of the call are used, and
// do not remain.
func (w *World) showsItsOwn() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if o.verb != "do" && o.verb != "first" || o.err != nil || !o.d.Allowed || o.d.Source != headgate.FromStore || err != nil {
			return
		}
		for i, policy := range o.policies() {
			n := o.units(i)
			if policy.Name == o.d.Policy && (o.d.Used < n || o.d.Remaining > o.d.Limit-n || o.d.ResetAfter <= 0) {
				err = fmt.Errorf("%s at %v: %v: used %d, remaining %d, reset after %v", c.name, o.begin.Sub(w.start), o, o.d.Used, o.d.Remaining, o.d.ResetAfter)
			}
		}
	})
	return err
}

// slotsAreFew counts the slots of a key that callers hold at an instant. A slot is held from the
// answer of its Reserve until its settle, its lease's end or a loss of counts.
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
		for i, p := range o.policies() {
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

// allCharged compares what passed of several keys on one server with what was charged at once.
func (w *World) allCharged() error {
	told, perhaps := map[joint]int{}, map[joint]int{}
	w.outcomes(func(c *caller, o *outcome) {
		if w.plan.Cluster || o.op != backend.Take {
			return
		}
		known := o.atOnce()
		for _, j := range o.pairs(known) {
			switch {
			case !known:
				perhaps[j]++
			case o.d.Allowed:
				told[j]++
			}
		}
	})
	for j, n := range told {
		if w.ledger.joints[j] < n {
			return fmt.Errorf("%+v: %d calls passed, %d were charged", j, n, w.ledger.joints[j])
		}
	}
	for j, n := range w.ledger.joints {
		if most := told[j] + perhaps[j]; n > most {
			return fmt.Errorf("%+v: %d calls were charged, %d passed and %d perhaps", j, n, told[j], perhaps[j])
		}
	}
	return nil
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

// looksForCallers compares the requests that only looked at a key of a crowd with the
// calls that did. A request that is written when its caller has left only looks. It is a
// rare one: it stands beside those of others.
func (w *World) looksForCallers() (err error) {
	if w.plan.has("spread") { // whose sub-keys are summed by looks
		return nil
	}
	calls, looks := map[int]int{}, map[int]int{}
	w.outcomes(func(c *caller, o *outcome) {
		if strings.HasPrefix(o.key, "c") {
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

// allAtOnce looks for reservations in plans without callers that reserve.
func (w *World) allAtOnce() error {
	if w.plan.Cluster || slices.ContainsFunc([]string{"reserve", "first", "named"}, w.plan.has) {
		return nil
	}
	for a, n := range w.ledger.sums {
		if a.op == backend.Reserve {
			return fmt.Errorf("%+v: %d units were reserved", a, n)
		}
	}
	return nil
}
