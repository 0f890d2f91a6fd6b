package sim

import (
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// ledger is what the nodes have charged, and when what they keep was lost or their clocks
// stepped.
type ledger struct {
	sums   map[account]int64
	events map[count][]charge
	losses int // how often nodes lost counts, or their clocks stepped
}

// account is what the charges of one process to one key sum up to, by operation.
type account struct {
	proc   int
	key    string
	policy string
	op     backend.Op
}

// count is a count: of a policy, for a key.
type count struct{ key, policy string }

// charge is a number of units at an instant of the node that charged them.
type charge struct {
	at    time.Time
	units int64
	loss  int // how many losses were before
}

// done is how one call of a group ended.
type done struct {
	costs  []int64 // what was charged, where it passed
	passed bool
}

func (l *ledger) init() {
	l.sums, l.events = map[account]int64{}, map[count][]charge{}
}

// disturb notes that nodes have lost counts, or that their clocks have stepped.
func (l *ledger) disturb() { l.losses++ }

// charge notes what the calls of groups were charged.
func (l *ledger) charge(proc int, n *node, all []*asked) {
	for _, g := range all {
		key, _, _ := slot.Parse(g.tag)
		first := all[0]
		for i := range first.done {
			d := &first.done[i]
			if g != first { // decided with the first
				d = &done{costs: g.runs[0].costs, passed: d.passed}
			}
			if d.passed {
				l.add(proc, key, g, d)
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
		case backend.RecordAtMost:
			op = backend.Record
		}
		if g.policies[p].Shadow {
			continue
		}
		units, name := d.costs[p], g.policies[p].Name
		l.sums[account{proc, key, name, op}] += units
		if g.op == backend.Take || g.op == backend.AtMost {
			c := count{key, name}
			l.events[c] = append(l.events[c], charge{time.Now(), units, l.losses})
		}
	}
}

// most returns the most units of any window in which no fault changed the count.
func (l *ledger) most(all []charge, window time.Duration) (most int64) {
	sum, first := int64(0), 0
	for _, c := range all {
		sum += c.units
		for all[first].at.Add(window).Compare(c.at) <= 0 || all[first].loss != c.loss {
			sum -= all[first].units
			first++
		}
		most = max(most, sum)
	}
	return most
}
