// Package oracle judges admitted traffic after the fact: given every charge
// with the instant it counts from, was any window fuller than its algorithm
// allows? It shares no code with the algorithms beyond their stated bound, so
// that a wrong rule can't excuse itself.
package oracle

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
)

// Oracle collects the admitted charges of one policy on one key. It assumes
// numbers that don't change and a clock that doesn't step back, as
// algo.Algorithm.Worst does.
type Oracle struct {
	a       algo.Algorithm
	charges []charge
	lag     int64
}

type charge struct{ at, units int64 }

// New returns an oracle that has seen nothing.
func New(a algo.Algorithm) *Oracle { return &Oracle{a: a} }

// Add records units admitted at an instant, in microseconds of the Unix
// epoch. The order of calls does not matter: answers overtake each other.
func (o *Oracle) Add(at, units int64) {
	o.charges = append(o.charges, charge{at, units})
}

// Late sets the lag of instants that a caller has read: each is at most so much before the
// charge, or after it. Then a window is judged without its lag.
func (o *Oracle) Late(lag time.Duration) { o.lag = lag.Microseconds() }

// Check returns a *BrokenError for the first window found that held more
// than the algorithm's worst, or nil.
//
// A TokenBucket is held to burst + rate*t between every two instants, and a LeakyQueue to
// as much and its longest delay. The
// others are held to Worst over trailing windows of a single microsecond, one
// period and seven: a burst, the promise, and the long run.
func (o *Oracle) Check() error {
	slices.SortFunc(o.charges, func(x, y charge) int { return cmp.Compare(x.at, y.at) })
	if k := o.a.Kind(); k == rule.KindTokenBucket || k == rule.KindLeakyQueue {
		return o.bucket()
	}
	w := o.a.Limit().Period
	for _, window := range [...]time.Duration{time.Microsecond, w, 7 * w} {
		if err := o.trailing(window); err != nil {
			return err
		}
	}
	return nil
}

// trailing checks each window (t-w, t] that ends at a charge. A fuller one
// that ends elsewhere can be moved to the charge before its end.
func (o *Oracle) trailing(w time.Duration) error {
	worst, held, first := o.a.Worst(w), int64(0), 0
	for _, c := range o.charges {
		from := c.at - max(1, w.Microseconds()-o.lag)
		for ; o.charges[first].at <= from; first++ {
			held -= o.charges[first].units
		}
		if held += c.units; held > worst {
			return &BrokenError{Algorithm: o.a.String(), From: from + 1, To: c.at, Held: held, Bound: worst}
		}
	}
	return nil
}

// bucket checks every pair of instants in one pass, as Lindley's recursion does
// for a queue. What a window that ends here holds above rate*t is at most the last one's
// excess, less what leaked since, plus this charge. The excess that is left is never
// below zero. Levels are in units times microseconds of the period: they are whole
// numbers, but pass 64 bits.
func (o *Oracle) bucket() error {
	events, period := o.a.Limit().Events, o.a.Limit().Period.Microseconds()
	full, level := product(o.a.Max(), period), new(big.Int)
	full.Add(full, product(events, o.lag+longest(&o.a)))
	first, held := 0, int64(0)
	for i, c := range o.charges {
		if i > 0 {
			level.Sub(level, product(events, c.at-o.charges[i-1].at))
		}
		if level.Sign() <= 0 {
			level.SetInt64(0)
			first, held = i, 0
		}
		held += c.units
		if level.Add(level, product(c.units, period)).Cmp(full) > 0 {
			from := o.charges[first].at
			leaked := product(events, c.at-from)
			leaked.Add(leaked, product(events, longest(&o.a)))
			bound := o.a.Max() + leaked.Div(leaked, big.NewInt(period)).Int64()
			return &BrokenError{Algorithm: o.a.String(), From: from, To: c.at, Held: held, Bound: bound}
		}
	}
	return nil
}

func product(x, y int64) *big.Int { return new(big.Int).Mul(big.NewInt(x), big.NewInt(y)) }

// BrokenError is a window that held more than its algorithm allows.
type BrokenError struct {
	Algorithm string
	From, To  int64 // the first and the last instant that count, µs
	Held      int64 // units admitted from From to To
	Bound     int64 // units that the algorithm allows
}

// Error names the window, what it held, and the bound.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("oracle: %s admitted %d units in the window [%d, %d] µs (%v), its worst is %d",
		e.Algorithm, e.Held, e.From, e.To, time.Duration(e.To-e.From+1)*time.Microsecond, e.Bound)
}
