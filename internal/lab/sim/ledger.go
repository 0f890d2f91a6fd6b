package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// ledger is what the nodes have charged, and when what they keep was lost or their clocks
// stepped.
type ledger struct {
	sums    map[account]int64
	events  map[count][]charge
	losses  []time.Time // when nodes lost counts, or their clocks stepped
	looks   map[int]int // requests of each process that only looked at a key of a crowd
	settles map[int]int // that nodes received of each process
	returns map[holding]int
	jobs    map[task]*reserved // under IDs of callers
	resets  map[string]int
	joints  map[joint]int
	held    map[count][]charge // by reservations
	loans   map[borrower]loanOf
	burnt   []loanOf // charged whole
	lent    map[holding][]time.Time
	removed map[holding][]time.Time // by Resets
}

// account is what the charges of one process to one key sum up to, by operation.
type account struct {
	proc   int
	key    string
	policy string
	op     backend.Op
}

// joint is two keys of one process that were charged at once.
type joint struct {
	proc     int
	one, two string
}

// jointOf returns the keys in one order.
func jointOf(proc int, a, b string) joint { return joint{proc, min(a, b), max(a, b)} }

// count is a count: of a policy, for a key.
type count struct{ key, policy string }

// charge is a number of units at an instant of the node that charged them.
type charge struct {
	at       time.Time
	units    int64
	loss     int   // how many losses were before
	recorded bool  // which may be above the limit
	limit    int64 // of the policy that a call passed by; 0 of others
}

// done is how one call of a group ended.
type done struct {
	costs  []int64 // what was charged, where it passed
	passed bool
	err    error
	each   []backend.State // what each policy answered
}

func (l *ledger) init() {
	l.sums, l.events = map[account]int64{}, map[count][]charge{}
	l.looks, l.settles, l.loans = map[int]int{}, map[int]int{}, map[borrower]loanOf{}
	l.returns, l.jobs = map[holding]int{}, map[task]*reserved{}
	l.lent, l.removed = map[holding][]time.Time{}, map[holding][]time.Time{}
	l.resets, l.joints, l.held = map[string]int{}, map[joint]int{}, map[count][]charge{}
}

// disturb notes that nodes have lost counts, or that their clocks have stepped.
func (l *ledger) disturb() { l.losses = append(l.losses, time.Now()) }

// disturbed reports whether there was a disturbance in a span of time.
func (l *ledger) disturbed(from, to time.Time) bool {
	return slices.ContainsFunc(l.losses, func(t time.Time) bool { return !t.Before(from) && !t.After(to) })
}

// charge notes what the calls of groups were charged.
func (l *ledger) charge(proc int, n *node, all []*asked) {
	lead := all[0]
	for _, g := range all {
		key, _, _ := slot.Parse(g.tag)
		first := all[0]
		if g.other {
			lead = g
		}
		if g.op == backend.Peek && strings.HasPrefix(key, "c") {
			l.looks[proc] += len(first.done)
		}
		switch g.op {
		case backend.Settle:
			l.settles[proc]++
			l.settled(key, g)
		case backend.Reset:
			l.resets[key]++
			l.removed[holding{proc, key}] = append(l.removed[holding{proc, key}], time.Now())
			l.disturb()
		}
		l.lends(proc, key, n.clock(), g)
		l.named(proc, key, n.clock(), g)
		ends := first.done
		if first.first {
			ends = g.done
		}
		for i := range ends {
			d := &ends[i]
			if g != first && !first.first { // decided with the first
				d = &done{costs: g.runs[0].costs, passed: d.passed}
			}
			if d.passed {
				l.add(proc, key, g, d)
			}
			if other, _, _ := slot.Parse(lead.tag); d.passed && g != lead && g.op == backend.Take {
				l.joints[jointOf(proc, key, other)]++
			}
		}
	}
}

func (l *ledger) add(proc int, key string, g *asked, d *done) {
	for p := range g.policies {
		op := g.op
		switch op {
		case backend.Reset, backend.Settle, backend.Extend, backend.Peek:
			return
		case backend.Borrow:
			op = backend.Take
		}
		units, name := d.costs[p], identity(g.policies[p])
		e := charge{at: time.Now(), units: units, loss: len(l.losses), recorded: op == backend.Record}
		if !e.recorded {
			e.limit = g.policies[p].Algorithm.Max()
		}
		if c := (count{key, name}); op == backend.Return {
			l.events[c] = append(l.events[c], charge{at: e.at, units: -units, loss: e.loss})
			continue
		}
		if !g.policies[p].Shadow {
			l.sums[account{proc, key, name, op}] += units
		} else if d.each == nil || !e.recorded && d.each[p].RetryAfter > 0 && d.each[p].Passed == 0 {
			continue // it had no room, or for a part of that
		}
		if c := (count{key, name}); op == backend.Reserve {
			l.held[c] = append(l.held[c], e)
		} else {
			l.events[c] = append(l.events[c], e)
		}
	}
}

// settled notes what a settle may have charged.
func (l *ledger) settled(key string, g *asked) {
	for i, units := range g.lease.Actual {
		c := count{key, identity(g.policies[i])}
		l.held[c] = append(l.held[c], charge{at: time.Now(), units: units})
	}
}

// lacks returns an error if units passed that were not charged.
func (l *ledger) lacks(passed map[account]int64) error {
	for a, n := range passed {
		if charged := l.sums[a]; charged < n {
			return fmt.Errorf("%+v: %d units passed, %d were charged", a, n, charged)
		}
	}
	return nil
}

// counted returns the units, of a Record only if those count.
func (c charge) counted(records bool) int64 {
	if c.recorded && !records {
		return 0
	}
	return c.units
}

// most returns the most units of any window that a call which passed has ended, and in which
// no fault changed the count. If records count too, they may exceed the limit, but then no
// call passes. On a spread key they don't: what had room when a Record began may pass.
// What is above the limit ages in one sub-key sooner than in another. Nodes count time in
// microseconds.
func (l *ledger) most(all []charge, window time.Duration, records bool) (most int64) {
	sum, first := int64(0), 0
	for _, c := range all {
		sum += c.counted(records)
		for all[first].at.Add(window-time.Microsecond).Compare(c.at) <= 0 || all[first].loss != c.loss {
			sum -= all[first].counted(records)
			first++
		}
		if !c.recorded && c.units > 0 {
			most = max(most, sum)
		}
	}
	return most
}

// aligned returns the most units of a window that begins at a multiple of its length, before
// a fault changed a count or a clock.
func aligned(all []charge, window time.Duration) (most int64) {
	sums := map[int64]int64{}
	for _, c := range all {
		if c.loss == 0 && !c.recorded {
			sums[c.at.UnixMicro()/window.Microseconds()] += c.units
		}
	}
	for _, n := range sums {
		most = max(most, n)
	}
	return most
}

// sum returns the units that were charged in a span of time, those of reservations with what
// they were settled by. Nothing that was returned is taken off: it may have been charged before.
func (l *ledger) sum(c count, from, to time.Time) (sum int64) {
	for _, all := range [...][]charge{l.events[c], l.held[c]} {
		for _, e := range all {
			if e.at.After(from) && !e.at.After(to) {
				sum += max(0, e.units)
			}
		}
	}
	return sum
}
