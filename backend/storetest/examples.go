package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

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
		steps = append(steps, step{time.Duration(i) * pause, 1, min(1, max(0, pass-i)), 0})
	}
	return steps
}

// boundary is 50 calls one second before a window's boundary and 50 one
// second after it. The algorithms differ most here: from twice the limit within
// two seconds to none of the second 50.
func boundary(pass int) []step {
	return []step{{9 * sec, 50, 50, 0}, {11 * sec, 50, pass, 0}}
}

// halfOpen is the window (now - W, now]: what is exactly W old has left it. A
// store that compares with the other operator is a microsecond late, which no
// random test finds.
func halfOpen(w time.Duration) []step {
	return []step{{0, 1, 1, 0}, {w - tick, 1, 0, tick}, {w, 1, 1, 0}}
}

// worked are the examples of Headgate's documentation whose numbers can be checked
// by arithmetic. They need SetNow.
var worked = []sentence{
	example("SlidingLog", algo.SlidingLog(algo.PerMinute(5)),
		step{3650 * sec, 1, 1, 0}, step{3680 * sec, 1, 1, 0}, step{3695 * sec, 1, 1, 0}, step{3710 * sec, 1, 1, 0},
		step{3720 * sec, 3, 2, 20 * sec}, step{3740*sec - tick, 1, 0, tick}, step{3740 * sec, 1, 1, 0}),
	example("FifteenCalls", algo.SlidingLog(algo.Per(10, 5*sec)), steady(15, 10, sec/10)...),
	example("FifteenCallsCompactLog", algo.CompactLog(algo.Per(10, 5*sec)), steady(15, 10, sec/10)...),
	example("Silence", algo.SlidingLog(algo.Per(5, 2*sec)),
		append(steady(3, 3, sec/2), step{3100 * time.Millisecond, 6, 5, 2 * sec})...),
	example("BoundaryFixedWindow", algo.FixedWindow(algo.Per(50, 10*sec)), boundary(50)...),
	example("BoundarySlidingWindow", algo.SlidingWindow(algo.Per(50, 10*sec)), boundary(5)...),
	example("BoundaryBucketedWindow", algo.BucketedWindow(algo.Per(50, 10*sec), 10), boundary(0)...),
	example("BoundarySlidingLog", algo.SlidingLog(algo.Per(50, 10*sec)), boundary(0)...),
	example("BoundaryCompactLog", algo.CompactLog(algo.Per(50, 10*sec)), boundary(0)...),
	example("BoundaryTokenBucket", algo.TokenBucket(algo.Per(50, 10*sec), 50), boundary(10)...),
	example("HalfOpenSlidingLog", algo.SlidingLog(algo.Per(1, 10*sec)), halfOpen(10*sec)...),
	example("HalfOpenCompactLog", algo.CompactLog(algo.Per(1, 10*sec)), halfOpen(10*sec)...),
	example("HalfOpenFixedWindow", algo.FixedWindow(algo.Per(1, 10*sec)), halfOpen(10*sec)...),
	example("HalfOpenTokenBucket", algo.TokenBucket(algo.Per(1, 10*sec), 1), halfOpen(10*sec)...),
	// Of buckets of five microseconds the oldest counts until its last has left.
	example("HalfOpenBucketedWindow", algo.BucketedWindow(algo.Per(1, time.Millisecond), 200),
		halfOpen(time.Millisecond+4*tick)...),
	{"SlidingWindow", twoBuckets, "floor(8 * (60 - 45) / 60) + 3 = 5"},
}

// examples need SetNow too, but for WeightedQuota. FiveReserves and Settlements need
// reservations.
var examples = []sentence{
	{"WeightedQuota", weighted, "95 searches of 100 units are all that a quota of 9,500 holds, from whichever region"},
	{"FiveReserves", fiveReserves, "25 of 40 and 90 of 40 make 115, and a cost of 1 is denied until it ages"},
	{"Settlements", settlesEach, "afterwards stands what would stand had min(estimate, actual) been charged, " +
		"and the excess recorded"},
}

// example is a sequence of takes on one key, with what each step has to answer.
func example(name string, a algo.Algorithm, steps ...step) sentence {
	return sentence{name, func(p *probe) {
		p.needsClock()
		list := p.carried(policy("api", a))
		for _, s := range steps {
			p.set(began + s.at.Microseconds())
			passed, last := 0, backend.Decision{}
			for range s.takes {
				if last = p.take("a", list, 1); last.Allowed {
					passed++
				}
			}
			p.must(passed == s.passes, "%v after %v: of %d calls %d pass, want %d", &a, s.at, s.takes, passed, s.passes)
			p.must(s.retry == 0 || last.RetryAfter == s.retry,
				"%v after %v: retry after %v, want %v", &a, s.at, last.RetryAfter, s.retry)
		}
	}, "the worked example " + name}
}

// twoBuckets stands 45 s into the window 29083335. The counts are made under a
// larger limit, since 8 do not pass under 5 per minute. With 3 units in the
// current window the key is spent, with 2 it has room for one. The estimate is
// rounded down, neither up nor to the nearest.
func twoBuckets(p *probe) {
	p.needsClock()
	was := p.carried(policy("api", algo.SlidingWindow(algo.PerMinute(20))))
	is := p.carried(policy("api", algo.SlidingWindow(algo.PerMinute(5))))
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

// settlement is one way in which a reservation of 40 of 100 ends, and what stands
// afterwards.
type settlement struct {
	name     string
	length   time.Duration // of the lease
	end      func(r *reservation)
	charged  int64 // units that stand at the instant of the Reserve; -1: none of the key's
	recorded int64 // units that are charged at the end
}

var settlements = []settlement{
	{"Twice", time.Minute, func(r *reservation) { r.settles(25); r.notHeld() }, 25, 0},
	{"AtOnce", time.Minute, func(r *reservation) { r.settledAtOnce(25, 25, 25, 25); r.notHeld() }, 25, 0},
	{"AfterCancel", time.Minute, func(r *reservation) { r.settles(0); r.notHeld() }, 0, 0},
	{"AfterEnd", 2 * sec, func(r *reservation) { r.p.advance(sec); r.settles(25) }, 25, 0},
	{"AfterRecordLeft", 2 * sec, func(r *reservation) { r.p.advance(3 * sec); r.notHeld() }, 40, 0},
	{"AfterReset", time.Minute, func(r *reservation) {
		r.p.reset(r.group.Key, r.group.Policies)
		r.p.asNew(r.group.Key, r.group.Policies)
		r.notHeld()
	}, -1, 0},
	{"AfterWindow", time.Hour, func(r *reservation) { r.p.advance(3 * time.Minute); r.settles(25) }, 25, 0},
	{"AboveAfterWindow", time.Hour, func(r *reservation) { r.p.advance(3 * time.Minute); r.settles(55) }, 40, 15},
	{"AboveEstimate", time.Minute, func(r *reservation) { r.settles(55) }, 40, 15},
	{"AboveLimit", time.Minute, func(r *reservation) { r.settles(150) }, 40, 110},
	{"Never", sec, func(r *reservation) { r.p.advance(5 * sec) }, 40, 0},
}

// settlesEach ends a reservation in each way, of each algorithm and of three of them.
func settlesEach(p *probe) {
	p.needsClock()
	for i := range p.shape.kinds {
		var list []backend.Policy
		for j := range min(len(p.shape.kinds), 3) {
			list = append(list, p.policy(fmt.Sprint("p", j), i+j, algo.PerMinute(100)))
		}
		p.carried(list...)
		for _, s := range settlements {
			s.run(p, fmt.Sprint(s.name, i), list, 5)
		}
	}
}

// run takes some units between the Reserve and its end. It compares the key with one
// that was never reserved, there and in each of the takes that follow, which the
// oracle judges.
func (s *settlement) run(p *probe, key string, list []backend.Policy, between int64) {
	p.t.Helper()
	plain := key + " as taken"
	p.passes(key, list, 10)
	p.passes(plain, list, 10)
	p.advance(sec)
	r := p.lease(group(key, list, 40))
	r.Length = s.length
	d, reserved := r.reserve(40), p.now
	taken := backend.Request{Op: backend.Take, Group: r.group}
	taken.Cost = s.charged
	if s.charged > 0 {
		p.passes(plain, list, s.charged)
	}
	p.advance(sec)
	if between > 0 {
		p.passes(key, list, between)
		p.passes(plain, list, between)
	}
	s.end(r)
	if s.charged >= 0 {
		p.ledger.note(reserved, &taken, &d)
		if s.recorded > 0 {
			p.ask(backend.Record, group(plain, list, s.recorded))
		}
		p.alike(key, plain, list)
	}
	s.follow(p, key, plain, list)
}

// follow takes of the key, and of the plain one what has to be the same.
func (s *settlement) follow(p *probe, key, plain string, list []backend.Policy) {
	p.t.Helper()
	for range steps(8, 25) {
		p.advance(time.Duration(p.dice.Int64N(6000)) * time.Millisecond)
		n := 1 + p.dice.Int64N(20)
		d := p.take(key, list, n)
		if s.charged >= 0 {
			like := p.take(plain, list, n)
			p.must(d.Allowed == like.Allowed, "after a settlement a take of %d said %+v, else %+v", n, d, like)
			p.alike(key, plain, list)
		}
	}
}

// fiveReserves reserves 40 of 100 five times at one instant. Two pass, and are settled
// by 25 and 90: 115 are used, and a cost of 1 is denied until enough of them has
// aged.
func fiveReserves(p *probe) {
	p.needsClock()
	for i := range p.shape.kinds {
		list := p.carried(p.policy("api", i, algo.PerMinute(100)))
		p.set(began + int64(i)*time.Hour.Microseconds())
		key := fmt.Sprint("k", i)
		first, second := p.reserved(key, list, 40), p.reserved(key, list, 40)
		for range 3 {
			p.lease(group(key, list, 40)).reserve(0)
		}
		first.settles(25)
		second.settles(90)
		p.used(key, list, 115)
		d := p.denied(key, list, 1)
		p.must(d.Used == 115 && d.Remaining == 0, "115 of 100 are used, and a denial said %+v", d.State)
		p.advance(d.RetryAfter - tick)
		p.denied(key, list, 1)
		p.advance(tick)
		p.passes(key, list, 1)
	}
}
