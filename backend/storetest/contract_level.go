package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
)

// settlesLevel lets a bucket leak and another fill it before the Settle.
func settlesLevel(p *probe) {
	p.needsClock()
	list := p.carried(policy("bucket", algo.TokenBucket(algo.PerSecond(1), 100)))
	for i, c := range []struct {
		pause               time.Duration
		taken, actual, used int64
	}{{30 * sec, 50, 0, 50}, {41 * sec, 50, 0, 50}, {10 * sec, 1, 35, 26}} {
		key := fmt.Sprint(i)
		r := p.reserved(key, list, 40)
		p.advance(c.pause)
		p.passes(key, list, c.taken)
		r.settles(c.actual)
		p.used(key, list, c.used)
	}
	list = p.carried(policy("bucket", algo.TokenBucket(algo.PerSecond(100), 200)))
	first, second, third := p.reserved("others", list, 100), p.reserved("others", list, 50), p.reserved("others", list, 50)
	first.settles(0)
	p.advance(time.Second / 2)
	third.settles(10)
	p.used("others", list, 10)
	p.advance(time.Second / 2)
	p.passes("others", list, 200)
	second.settles(0)
	p.used("others", list, 200)
}

// refills reserves from a spent bucket and gives back, by turns, so often that the level
// leaks less than 2^-15 of a unit in between.
func refills(p *probe) {
	p.needsClock()
	list := p.carried(policy("bucket", algo.TokenBucket(algo.PerMinute(1), 100)))
	p.passes("a", list, 99)
	times := time.Duration(steps(100, 400))
	for range times {
		r := p.reserved("a", list, 1)
		p.advance(sec / 2000)
		r.settles(0)
		p.advance(sec / 2000)
	}
	back := 99*time.Minute - p.peek("a", list, 1).ResetAfter
	p.must(back > times*sec/1000*999/1000 && back <= times*sec/1000, "in %v came back what leaks in %v", times*sec/1000, back)
}
