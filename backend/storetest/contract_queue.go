package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// queue returns a LeakyQueue of 10/s, a burst of 2 and a delay of 250 ms, so four units pass.
func (p *probe) queue(shadow bool) backend.Policy {
	q := policy("queue", algo.LeakyQueue(algo.PerSecond(10), 2, sec/4))
	q.Shadow = shadow
	return q
}

// queues spends a queue, beside a slower one that is a shadow.
func queues(p *probe) {
	p.needsClock()
	shadow := policy("shadow", algo.LeakyQueue(algo.PerSecond(1), 1, time.Minute))
	shadow.Shadow = true
	list := p.carried(shadow, p.queue(false))
	for i, want := range []time.Duration{0, 0, sec / 10, sec / 5} {
		if d := p.peek("a", list, 1); d.Delay != want || d.Remaining != max(0, 2-int64(i)) {
			p.must(false, "a look at the call %d has a Delay of %v, and %d units remain: want %v", i, d.Delay, d.Remaining, want)
		}
		d := p.passes("a", list, 1)
		s := p.states("a", list)
		p.must(d.Delay == want && d.Used == int64(i)+1 && d.Limit == 2 && s[1].Used == d.Used, "call %d waits for %v, want %v: %+v", i, d.Delay, want, d)
	}
	d := p.denied("a", list, 1)
	p.must(d.Delay == 0 && d.RetryAfter == sec/20, "a denial has a Delay of %v, and a RetryAfter of %v", d.Delay, d.RetryAfter)
	p.advance(d.RetryAfter - tick)
	p.denied("a", list, 1)
	p.advance(tick)
	d = p.passes("a", list, 1)
	p.must(d.Delay == sec/4, "the call after a RetryAfter waits for %v", d.Delay)
	g := group("run", list[1:], 1)
	g.Run, g.UpTo = 9, true
	d = p.takes(g, true)
	p.must(d.Passed == 4 && d.Delay == sec/5 && d.NextAfter == sec/20, "of a run %d pass, the last one after %v, the next one after %v", d.Passed, d.Delay, d.NextAfter)
	alone := p.carried(p.queue(true))
	for range 4 {
		d = p.passes("shadow", alone, 1)
	}
	p.must(d.Delay == 0 && d.State.Delay == sec/5, "a shadow delays a call by %v, its state has %v", d.Delay, d.State.Delay)
}

// queueGivesBack settles behind nothing, and behind another call.
func queueGivesBack(p *probe) {
	p.needsClock()
	list := p.carried(p.queue(false))
	for i, behind := range []int64{0, 1} {
		key := fmt.Sprint(i)
		p.passes(key, list, 1)
		r := p.reserved(key, list, 2)
		p.advance(sec / 20)
		if behind > 0 {
			p.passes(key, list, behind)
		}
		r.settles(0)
		p.used(key, list, 1+3*behind)
	}
}
