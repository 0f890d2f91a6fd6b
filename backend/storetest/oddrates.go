package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// oddRates are rates that no number of microseconds divides, and rates of
// several units per microsecond, with about two seconds' burst. The last is a
// unit every 2.6 ms over a period so long that products need more than 53 bits.
var oddRates = []struct {
	rate  algo.Limit
	burst int64
}{
	{algo.PerSecond(7), 700},
	{algo.PerSecond(30_000), 60_000},
	{algo.PerSecond(700_000), 1_400_000},
	{algo.PerSecond(3_000_000), 6_000_000},
	{algo.Per(1_000_000_000, 30*24*time.Hour), 1000},
}

// OddRates saturates a TokenBucket at rates that are hard to meet, for a
// virtual minute in large costs and a shorter while in single units. It makes
// at most calls calls per rate, and at least 200. What passes must not be more
// than burst + rate*t, nor less than 99.9 % of it. It needs SetNow. A store
// without TokenBucket skips it.
func OddRates(t *testing.T, h Harness, calls int) {
	const rule = "rates are exact: never more than burst + rate*t, and at least 99.9 % of it"
	for _, r := range oddRates {
		a := algo.TokenBucket(r.rate, r.burst)
		t.Run(fmt.Sprint(r.rate), func(t *testing.T) { saturates(h.probe(t, rule, shape{}), a, max(calls, 200)) })
	}
}

// saturates takes in both ways: rounding per call shows in single units, and
// rounding that grows with the time between calls in large costs.
func saturates(p *probe, a algo.Algorithm, calls int) {
	p.needsClock()
	list := p.carried(policy("rate", a))
	p.inBulk(list, calls/4) // two calls per step
	p.oneByOne(list, calls/2-1)
}

// inBulk takes all that there is, step by step for a minute.
func (p *probe) inBulk(list []backend.Policy, steps int) {
	start, a := p.now, &list[0].Algorithm
	passed := a.Max()
	p.passes("bulk", list, passed)
	for i := range int64(steps) {
		p.set(start + (i+1)*60_000_000/int64(steps))
		if n := p.peek("bulk", list, 0).Remaining; n > 0 && p.take("bulk", list, n).Allowed {
			passed += n
		}
	}
	want := a.Max() + leaks(a, p.now-start)
	p.must(passed <= want && passed >= want/1000*999, "%v passed %d in a minute, want %d", a, passed, want)
}

// oneByOne takes single units as soon as there is one. The burst goes first,
// so that it can't hide a rate that is too slow. The margin adds the unit that
// has not leaked yet when the calls end, and what leaks in the last microsecond.
func (p *probe) oneByOne(list []backend.Policy, calls int) {
	start, passed, a := p.now, int64(0), &list[0].Algorithm
	p.passes("single", list, a.Max())
	for range calls {
		d := p.take("single", list, 1)
		if d.Allowed {
			passed++
		}
		p.advance(d.RetryAfter)
	}
	leaked := leaks(a, p.now-start)
	p.must(passed <= leaked && passed >= leaked*999/1000-1-leaks(a, 1), "%v passed %d single units in %v, want %d",
		a, passed, time.Duration(p.now-start)*tick, leaked)
}

// leaks returns how many whole units leak in a time, of hours at most: the
// product would overflow beyond.
func leaks(a *algo.Algorithm, us int64) int64 {
	return us * a.Limit().Events / a.Limit().Period.Microseconds()
}
