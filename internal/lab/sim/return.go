package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// returns takes units out of a key, in a sixth of its calls.
func (c *caller) returns() {
	if c.dice.IntN(6) > 0 {
		c.take()
		return
	}
	l, key, costs := c.limiter(), c.key(), c.costs()
	c.ask(outcome{verb: "return", op: backend.Return, key: key, costs: costs}, func(ctx context.Context) (headgate.Decision, error) {
		return l.Return(ctx, key, costs...)
	})
}

// returnsOnce compares the Returns of each process with those that nodes received.
func (w *World) returnsOnce() error {
	told, perhaps := map[holding]int{}, map[holding]int{}
	w.outcomes(func(c *caller, o *outcome) {
		switch at := (holding{c.process.number, o.key}); {
		case o.op != backend.Return:
		case o.perhaps():
			perhaps[at]++
		case o.err == nil:
			told[at]++
		}
	})
	for at, n := range told {
		if received := w.ledger.returns[at]; received < n {
			return fmt.Errorf("process %d, %s: %d Returns returned nil, the nodes received %d", at.proc, at.key, n, received)
		}
	}
	for at, n := range w.ledger.returns {
		if most := told[at] + perhaps[at]; n > most {
			return fmt.Errorf("process %d, %s: the nodes received %d Returns, %d returned nil and %d perhaps", at.proc, at.key, n, told[at], perhaps[at])
		}
	}
	return nil
}

// returnsForget looks at calls that a remembered denial answered after a Return of their process.
// Another call that was under way after the Return began must have brought that denial. What a
// queue of callers asks is no outcome, so plans with one are left out.
func (w *World) returnsForget() (err error) {
	if w.plan.has("wait") || w.plan.has("wait all") {
		return nil
	}
	for _, p := range w.procs {
		for key, all := range p.byKey() {
			var last *outcome // the Return that was made last
			for _, o := range all {
				switch {
				case o.op == backend.Return && o.err == nil:
					last = o
				case o.d.Source != headgate.FromDenyCache || o.err != nil || key != cmp.Or(o.d.Key, o.key) || last == nil || o.begin.Before(last.end):
				case !slices.ContainsFunc(all, func(b *outcome) bool { return b.brings(o, last.begin) }) && err == nil:
					err = fmt.Errorf("process %d, %s at %v: %v; returned at %v", p.number, key, o.begin.Sub(w.start), o, last.end.Sub(w.start))
				}
			}
		}
	}
	return err
}

// brings reports whether a call may have brought a denial from the store, after an instant and
// before the end of another call. A reply may come after its caller has left.
func (o *outcome) brings(to *outcome, after time.Time) bool {
	sent := o.d.Source != headgate.FromDenyCache && o.d.Source != headgate.FromLoan || o.stood()
	return o.op != backend.Return && sent && !o.begin.After(to.end) && !o.end.Add(2*budget).Before(after)
}

// byKey returns the calls of a process of each key, in the order in which they ended. A First is
// one of each key of its parts.
func (p *process) byKey() map[string][]*outcome {
	all := map[string][]*outcome{}
	for _, c := range p.callers {
		for i := range c.calls {
			o := &c.calls[i]
			keys := o.keys()
			for _, a := range o.parts {
				keys = append(keys, a.keys...)
			}
			slices.Sort(keys)
			for _, key := range slices.Compact(keys) {
				all[key] = append(all[key], o)
			}
		}
	}
	for _, of := range all {
		slices.SortStableFunc(of, func(a, b *outcome) int { return a.end.Compare(b.end) })
	}
	return all
}
