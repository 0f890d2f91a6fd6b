package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
)

// Lending is what some plans have whose policies borrow.
type Lending struct {
	Borrow time.Duration // the term; 0: no policy borrows
	Runs   bool          // those who borrow call eight times in a moment, and then rest
	Large  int64         // the most units of a large call, nine tenths of the limit, about once in a period; 0: there is none
}

// lenders is how many callers borrow in each of the first processes.
const (
	lenders  = 2
	lendings = 12_000 // calls of those in a run
)

// lend draws a list of policies that lend, whose limit the callers reach or do not.
func (p *Plan) lend(dice *rand.Rand) {
	p.Borrow = [...]time.Duration{100, 250, 500, 1000}[dice.IntN(4)] * time.Millisecond
	p.Runs = dice.IntN(2) == 0
	rate := int64(lendings) / int64(p.Lasts/time.Second) * int64(min(p.Procs, 4)) / 4
	var list []headgate.Policy
	for i := range 1 + dice.IntN(2) {
		period := int64(1 + dice.IntN(10))
		limit := max(rate*period*10/int64(5+dice.IntN(25)), 48, int64(8*p.Procs)) // 50 to 290 % of it are called
		l := algo.Limit{Events: limit, Period: time.Duration(period) * time.Second}
		a := [...]algo.Algorithm{
			algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 10), algo.TokenBucket(l, max(limit/4, 48, int64(8*p.Procs))),
			algo.SlidingLog(l), algo.CompactLog(l),
		}[dice.IntN(6)]
		list = append(list, headgate.Policy{Name: fmt.Sprint("lent", i), Algorithm: a, OnFailure: p.Mode})
	}
	often := 2*calm + silence
	switch {
	case dice.IntN(4) == 0: // stopped again and again, so that Borrows come after a window has closed
		list, often = p.apart(dice, list[0]), calm
	case dice.IntN(2) == 0 && p.Borrow >= 500*time.Millisecond && !p.has("wait all") && !p.has("late"): // which need a near link
		p.Far, p.Distant, p.Uneven = true, false, true
	}
	if p.Lists[plain] = list; dice.IntN(2) == 0 && !p.has("spread") {
		p.Large = most(list) * 9 / 10
	}
	if (often == calm || dice.IntN(2) == 0) && p.Borrow >= 250*time.Millisecond && !p.Far {
		p.stop(dice, often)
	}
}

// apart makes a list of a policy whose parts of a loan end apart: a window of a second, and a
// bucket that fills slowly. What is freed too early shows when the bucket is full.
func (p *Plan) apart(dice *rand.Rand, first headgate.Policy) []headgate.Policy {
	rate := max(first.Algorithm.Max()*int64(time.Second)/int64(first.Algorithm.Limit().Period), 48, int64(8*p.Procs))
	bucket := first
	first.Algorithm = algo.FixedWindow(algo.PerSecond(rate))
	bucket.Name, bucket.Algorithm = "lent1", algo.TokenBucket(algo.Per(rate*30, time.Minute), rate*int64(4+dice.IntN(8)))
	return []headgate.Policy{first, bucket}
}

// stop stops processes that borrow for a term at most, so often. Of shorter terms and over far links a
// circuit may be open for longer than a loan stands.
func (p *Plan) stop(dice *rand.Rand, often time.Duration) {
	for at := calm; at < p.Lasts-calm; at += often {
		p.Schedule = append(p.Schedule, fault{
			at: at + time.Duration(dice.Int64N(int64(time.Second))), lasts: time.Duration(1 + dice.Int64N(int64(p.Borrow))), kind: stopped, proc: dice.IntN(min(p.Procs, 4)),
		})
	}
}

// most returns the least of the limits of the policies that deny.
func most(list []headgate.Policy) (n int64) {
	n = rule.MaxUnits
	for _, policy := range list {
		if !policy.Shadow {
			n = min(n, policy.Algorithm.Max())
		}
	}
	return n
}

// borrow makes a call of a key of which processes borrow units. A large call is made again while
// it is denied for units that are lent only.
func (c *caller) borrow() {
	key, costs, plan := c.keyOf(8), []int64(nil), c.process.world.plan
	if plan.Uneven && plan.has("reset") && c.dice.IntN(100) == 0 { // a Borrow may be under way, and come back after it
		c.remove(key)
		return
	}
	switch n := c.dice.IntN(40); {
	case n < 2:
		c.peek(key, nil)
		return
	case n < 5:
		costs = c.costs()
	case n < 9:
		costs = slices.Repeat([]int64{2}, len(c.policies()))
	case n < 10 && plan.Large > 0 && c.once():
		costs = c.alike(min(plan.Large, most(c.policies())))
	}
	for range 12 {
		last := c.do(key, costs)
		if plan.Large == 0 || last.withheld() == nil {
			return
		}
		c.pause(plan.Borrow / 5)
	}
}

// once reports about once in a period whether one call in 40 is to be that one.
func (c *caller) once() bool {
	period := c.policies()[0].Algorithm.Limit().Period
	return c.dice.IntN(1+int(period*lendings/c.process.world.plan.Lasts/40)) == 0
}

// alike draws 2 units or more of each policy, the same number.
func (c *caller) alike(most int64) []int64 {
	return slices.Repeat([]int64{2 + c.dice.Int64N(max(most-1, 1))}, len(c.policies()))
}
