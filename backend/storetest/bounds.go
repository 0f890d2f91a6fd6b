package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Bounds sends traffic that is made to break limits, and holds the admitted
// charges to the bound that each algorithm states. It needs SetNow.
func Bounds(t *testing.T, h Harness) {
	const rule = "no trailing window ever holds more than the algorithm's worst"
	t.Run("Storm", func(t *testing.T) { h.each(t, rule, storms) })
	const least = "BucketedWindow of B buckets as wide as ceil(W / B) admits " +
		"at least W / ((B+1) * width) of its limit"
	t.Run("Saturated", func(t *testing.T) { saturated(h.probe(t, least, shape{})) })
}

// stormCalls is how many calls a storm has: enough for some dozens of windows of
// the smaller limits, and still a fraction of a second behind a network.
const stormCalls = 400

func storms(p *probe) {
	p.needsClock()
	for i, l := range []algo.Limit{algo.Per(5, 10*sec), algo.PerMinute(100), algo.Per(17, 7*sec+13*tick)} {
		p.storm(fmt.Sprint(i), p.list(l), l)
	}
	for _, b := range []int64{2, 3, 7, 61} { // 7 and 61 don't divide the period: the oldest bucket is partly in the window
		if l := algo.Per(17, 7*sec+13*tick); p.shape.name == "BucketedWindow" {
			p.storm(fmt.Sprint("buckets ", b), p.carried(policy("bucketed", algo.BucketedWindow(l, b))), l)
		}
	}
}

// storm takes at the instants where counts change hands, just before them
// and just after, at any cost, and at random. A twentieth of both outcomes is
// the least that makes it a storm: all denied breaks no bound, all passed tests
// none. The limit of a spread key is too large for so many denials.
func (p *probe) storm(key string, list []backend.Policy, l algo.Limit) {
	count := map[bool]int{}
	for range stormCalls {
		d := p.take(key, list, p.cost(l.Events/p.k))
		count[d.Allowed]++
		if !d.Allowed || p.dice.IntN(3) == 0 {
			p.advance(p.wait(l.Period, d))
		}
	}
	const least = stormCalls / 20
	p.must(count[true] > least && (p.k > 1 || count[false] > least), "too few takes passed, or were denied: %v", count)
}

// cost is mostly small, sometimes everything.
func (p *probe) cost(most int64) int64 {
	switch p.dice.IntN(10) {
	case 0:
		return most
	case 1, 2, 3:
		return 1 + p.dice.Int64N(most)
	}
	return 1
}

// wait is how long until the next call of a storm: to a window's or a bucket's
// boundary, to what the store itself says, or to anywhere. The random jump is
// short, so that most calls fall into a window that others have filled.
func (p *probe) wait(period time.Duration, d backend.Decision) time.Duration {
	edge := time.Duration(p.dice.IntN(3)-1) * tick // before, at, after
	switch p.dice.IntN(6) {
	case 0:
		return max(0, p.untilMultiple(period)+edge)
	case 1:
		return max(0, p.untilMultiple(period/10)+edge)
	case 2:
		return max(0, d.ResetAfter+edge)
	case 3:
		return time.Duration(p.dice.Int64N(int64(period) / 4))
	}
	return max(0, d.RetryAfter+edge)
}

// untilMultiple is the time until the clock is a multiple of d.
func (p *probe) untilMultiple(d time.Duration) time.Duration {
	us := d.Microseconds()
	return time.Duration(us-p.now%us) * tick
}

// saturated asks for twice the limit, evenly, for twenty windows. A caller that
// takes each unit the instant it is free falls into step with the buckets and
// gets the whole limit, which would hide a bound that is too strict.
func saturated(p *probe) {
	p.needsClock()
	for _, b := range []int64{2, 7, 10} {
		l := algo.Per(20, 10*sec+7*tick)
		list, key := p.carried(policy("bucketed", algo.BucketedWindow(l, b))), fmt.Sprint(b)
		start, passed := p.now, int64(0)
		for range 20 * 2 * l.Events {
			if p.take(key, list, 1).Allowed {
				passed++
			}
			p.advance(l.Period / time.Duration(2*l.Events))
		}
		width := (l.Period.Microseconds() + b - 1) / b
		p.must(passed*(b+1)*width >= l.Events*(p.now-start),
			"%d buckets admitted %d in %v", b, passed, time.Duration(p.now-start)*tick)
	}
}
