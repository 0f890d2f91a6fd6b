package storetest

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// example is a sequence of takes on one key, with what each step has to answer.
type example struct {
	name  string
	a     algo.Algorithm
	steps []step
}

type step struct {
	at     time.Duration // since began
	takes  int           // calls of cost 1
	passes int           // how many of them pass
	retry  time.Duration // RetryAfter of the last, where it is denied; 0: not checked
}

// began is where the examples begin: a whole number of minutes and days, so that
// the windows of every period in them begin there too.
const began = 20197 * 24 * 3600 * 1_000_000

const sec = time.Second

// steady is n calls with a pause between; the first few pass.
func steady(n, pass int, pause time.Duration) []step {
	var steps []step
	for i := range n {
		steps = append(steps, step{at: time.Duration(i) * pause, takes: 1, passes: min(1, max(0, pass-i))})
	}
	return steps
}

// boundary is 50 calls one second before a window's boundary and 50 one
// second after it. The algorithms differ most here: from twice the limit within
// two seconds to none of the second 50.
func boundary(pass int) []step {
	return []step{{at: 9 * sec, takes: 50, passes: 50}, {at: 11 * sec, takes: 50, passes: pass}}
}

// halfOpen is the window (now - W, now]: what is exactly W old has left it. A
// store that compares with the other operator is a microsecond late, which no
// random test finds.
func halfOpen(w time.Duration) []step {
	return []step{{0, 1, 1, 0}, {w - tick, 1, 0, tick}, {w, 1, 1, 0}}
}

var examples = []example{
	{"SlidingLog", algo.SlidingLog(algo.PerMinute(5)), []step{
		{3650 * sec, 1, 1, 0}, {3680 * sec, 1, 1, 0}, {3695 * sec, 1, 1, 0}, {3710 * sec, 1, 1, 0},
		{3720 * sec, 3, 2, 20 * sec}, {3740*sec - tick, 1, 0, tick}, {3740 * sec, 1, 1, 0},
	}},
	{"FifteenCalls", algo.SlidingLog(algo.Per(10, 5*sec)), steady(15, 10, sec/10)},
	{"FifteenCallsCompactLog", algo.CompactLog(algo.Per(10, 5*sec)), steady(15, 10, sec/10)},
	{"Silence", algo.SlidingLog(algo.Per(5, 2*sec)), append(steady(3, 3, sec/2),
		step{at: 3100 * time.Millisecond, takes: 6, passes: 5, retry: 2 * sec})},
	{"BoundaryFixedWindow", algo.FixedWindow(algo.Per(50, 10*sec)), boundary(50)},
	{"BoundarySlidingWindow", algo.SlidingWindow(algo.Per(50, 10*sec)), boundary(5)},
	{"BoundaryBucketedWindow", algo.BucketedWindow(algo.Per(50, 10*sec), 10), boundary(0)},
	{"BoundarySlidingLog", algo.SlidingLog(algo.Per(50, 10*sec)), boundary(0)},
	{"BoundaryCompactLog", algo.CompactLog(algo.Per(50, 10*sec)), boundary(0)},
	{"BoundaryTokenBucket", algo.TokenBucket(algo.Per(50, 10*sec), 50), boundary(10)},
	{"HalfOpenSlidingLog", algo.SlidingLog(algo.Per(1, 10*sec)), halfOpen(10 * sec)},
	{"HalfOpenCompactLog", algo.CompactLog(algo.Per(1, 10*sec)), halfOpen(10 * sec)},
	{"HalfOpenFixedWindow", algo.FixedWindow(algo.Per(1, 10*sec)), halfOpen(10 * sec)},
	{"HalfOpenTokenBucket", algo.TokenBucket(algo.Per(1, 10*sec), 1), halfOpen(10 * sec)},
	// Of buckets of five microseconds the oldest counts until its last has left.
	{"HalfOpenBucketedWindow", algo.BucketedWindow(algo.Per(1, time.Millisecond), 200),
		halfOpen(time.Millisecond + 4*tick)},
}

// Examples runs the worked examples of Headgate's documentation, whose numbers
// can be checked by hand. All but WeightedQuota need SetNow,
// and FiveReserves and Settlements reservations.
func Examples(t *testing.T, h Harness) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) { h.probe(t, "the worked example "+e.name, shape{}).follow(e) })
	}
	t.Run("SlidingWindow", func(t *testing.T) { twoBuckets(h.probe(t, "floor(8 * (60 - 45) / 60) + 3 = 5", shapes[1])) })
	t.Run("WeightedQuota", func(t *testing.T) {
		h.each(t, "95 searches of 100 units are all that a quota of 9,500 holds, from whichever region", weighted)
	})
	t.Run("FiveReserves", func(t *testing.T) {
		h.each(t, "25 of 40 and 90 of 40 make 115, and a cost of 1 is denied until it ages", fiveReserves)
	})
	t.Run("Settlements", func(t *testing.T) {
		h.each(t, "afterwards stands what would stand had min(estimate, actual) been charged, and the excess recorded", settlesEach)
	})
}

func (p *probe) follow(e example) {
	p.needsClock()
	list := p.carried(policy("api", e.a))
	for _, s := range e.steps {
		p.set(began + s.at.Microseconds())
		passed, last := 0, backend.Decision{}
		for range s.takes {
			if last = p.take("a", list, 1); last.Allowed {
				passed++
			}
		}
		p.must(passed == s.passes, "%v after %v: of %d calls %d passed, want %d", &e.a, s.at, s.takes, passed, s.passes)
		p.must(s.retry == 0 || last.RetryAfter == s.retry,
			"%v after %v: retry after %v, want %v", &e.a, s.at, last.RetryAfter, s.retry)
	}
}

// twoBuckets stands 45 s into the window 29083335. The counts are made under a
// larger limit, since 8 do not pass under 5 per minute. With 3 units in the
// current window the key is spent, with 2 it has room for one: the estimate is
// rounded down, neither up nor to the nearest.
func twoBuckets(p *probe) {
	p.needsClock()
	was, is := p.list(algo.PerMinute(20)), p.list(algo.PerMinute(5))
	p.set(1_745_000_085 * 1_000_000)
	p.passes("three", was, 8)
	p.passes("two", was, 8)
	p.advance(59 * sec)
	p.passes("three", was, 3)
	p.passes("two", was, 2)
	p.advance(sec)
	p.used("three", is, 5)
	p.denied("three", is, 1)
	p.used("two", is, 4)
	p.passes("two", is, 1)
}

// weighted spends one quota from eight limiters that were made separately: what
// they share is the name and the algorithm, not the list.
func weighted(p *probe) {
	regions := make([][]backend.Policy, 8)
	for i := range regions {
		regions[i] = p.list(p.day(9500))
	}
	for i := range 95 {
		p.passes("project", regions[i%8], 100) // search
	}
	for i, list := range regions {
		d := p.denied("project", list, 100)
		p.must(d.Used == 9500 && d.Remaining == 0, "region %d sees %+v", i, d.State)
		p.denied("project", list, 1) // videos, channels
	}
}
