package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

// Identity gives one policy name different algorithms or numbers, as the limiters
// of a rolling deploy do. Untouched needs no hook, Leaves needs SetNow and
// Expiries, the others need SetNow.
func Identity(t *testing.T, h Harness) {
	const apart = "algorithms of another identity under one name count apart"
	for _, k := range []kind{algo.FixedWindow, algo.SlidingWindow} {
		a := k(algo.PerSecond(10))
		t.Run("Example"+a.Kind().String(), func(t *testing.T) { deploys(h.probe(t, apart, shape{kinds: []kind{k}})) })
	}
	t.Run("Untouched", func(t *testing.T) { h.each(t, apart, untouched) })
	t.Run("Pairs", func(t *testing.T) {
		for seed := range uint64(pairs) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { agree(h.probe(t, apart, shape{}), rand.New(rand.NewPCG(seed, 1))) })
		}
	})
	t.Run("Leaves", func(t *testing.T) {
		h.each(t, "what no limiter asks for any more leaves within twice its period, also where its key stays in use", leaves)
	})
}

// deploys alternates two limits for 900 ms inside one minute and one second. A
// store that keeps one value per name starts a new window with each call, and
// passes all 3,000.
func deploys(p *probe) {
	p.needsClock()
	minute, second := p.list(algo.PerMinute(600)), p.list(algo.PerSecond(10))
	p.set(began + 30*sec.Microseconds())
	passed := [2]int64{}
	for i := range 3000 {
		p.advance(300 * tick)
		if p.take("a", [][]backend.Policy{minute, second}[i%2], 1).Allowed {
			passed[i%2]++
		}
	}
	p.must(passed == [2]int64{600, 10}, "600 per minute and 10 per second passed %d", passed)
	p.used("a", minute, 600)
	p.used("a", second, 10)
}

// untouched calls a spent key with another period. The identity of a TokenBucket
// has no period, so both limiters share its level, and the hour's is denied.
func untouched(p *probe) {
	day, hour := p.list(algo.PerDay(100)), p.list(algo.PerHour(5))
	p.passes("a", day, 100)
	before := p.states("a", day)
	if p.shape.name == "TokenBucket" {
		p.denied("a", hour, 1)
		return
	}
	if p.shape.name == "All" { // without the bucket, the second of the list
		day, hour = append(day[:1:1], day[2:]...), append(hour[:1:1], hour[2:]...)
		before = append(before[:1:1], before[2:]...)
	}
	p.passes("a", hour, 3)
	p.unchanged("a", day, before)
	p.used("a", hour, 3)
	p.denied("a", day, 1)
	p.reset("a", hour)
	p.unchanged("a", day, before)
	p.used("a", hour, 0)
}

// pairs is how many pairs of limiters are drawn: each pair of kinds some six
// times, with shared identities in a third.
const pairs = 150

// agree alternates two limiters on one key. Where their identities differ, each
// gets the answer that it gets on a key of its own; else they share one count,
// which must stay within the bound of the greater one.
func agree(p *probe, r *rand.Rand) {
	p.needsClock()
	first := drawn(r)
	second := drawn(r)
	if r.IntN(3) == 0 {
		second = sibling(r, first)
	}
	lists := [2][]backend.Policy{p.carried(policy("api", first)), p.carried(policy("api", second))}
	if first.Identity() == second.Identity() {
		p.agreeShared(r, lists, oracle.New(greater(&first, &second)))
		return
	}
	for range 60 {
		i := r.IntN(2)
		n := p.step(r, lists[i])
		other := p.states("both", lists[1-i])
		d := p.take("both", lists[i], n)
		p.unchanged("both", lists[1-i], other)
		alone := p.take(fmt.Sprint("alone ", i), lists[i], n)
		p.must(d.Allowed == alone.Allowed && (p.Cached || p.same(d.State, alone.State)),
			"beside another, %v says\n\t%+v, alone\n\t%+v", &lists[i][0].Algorithm, d.State, alone.State)
	}
}

// step moves the clock by a part of the period and draws a cost.
func (p *probe) step(r *rand.Rand, list []backend.Policy) int64 {
	a := &list[0].Algorithm
	p.advance(time.Duration(r.Int64N(int64(a.Limit().Period))) / time.Duration(1+r.IntN(20)) / tick * tick)
	return 1 + r.Int64N(1+a.Max()/3)
}

// agreeShared compares the counts only after a take that passed: a bucket's level
// has not leaked yet then, by either rate.
func (p *probe) agreeShared(r *rand.Rand, lists [2][]backend.Policy, both *oracle.Oracle) {
	a, b := &lists[0][0].Algorithm, &lists[1][0].Algorithm
	for range 60 {
		i := r.IntN(2)
		if n := p.step(r, lists[i]); p.take("both", lists[i], n).Allowed {
			both.Add(p.now, n)
			x, y := p.states("both", lists[0])[0], p.states("both", lists[1])[0]
			p.must(x.Used == y.Used, "%v counts %d units, %v %d", a, x.Used, b, y.Used)
		}
	}
	if err := both.Check(); err != nil {
		p.errorf("%v and %v: %v", a, b, err)
	}
}

// drawn returns any algorithm, with numbers so small that sixty calls spend it.
func drawn(r *rand.Rand) algo.Algorithm {
	l := algo.Per(1+r.Int64N(12), []time.Duration{100 * time.Millisecond, sec, 7 * sec, time.Minute}[r.IntN(4)])
	switch r.IntN(5) {
	case 0:
		return algo.FixedWindow(l)
	case 1:
		return algo.SlidingWindow(l)
	case 2:
		return algo.TokenBucket(l, 1+r.Int64N(12))
	case 3:
		return algo.BucketedWindow(l, 2+r.Int64N(4))
	}
	return algo.SlidingLog(l)
}

// sibling returns an algorithm of the same identity with other numbers.
func sibling(r *rand.Rand, a algo.Algorithm) algo.Algorithm {
	for b := drawn(r); ; b = drawn(r) {
		if b.Identity() == a.Identity() {
			return b
		}
	}
}

// greater returns what holds of two algorithms of one identity together: the
// greater limit, or the greatest rate and the greatest burst.
func greater(a, b *algo.Algorithm) algo.Algorithm {
	x, y := a.Limit(), b.Limit()
	if a.Kind() == algo.KindTokenBucket && b.Kind() == algo.KindTokenBucket {
		if x.Events*y.Period.Microseconds() < y.Events*x.Period.Microseconds() {
			x = y
		}
		return algo.TokenBucket(x, max(a.Max(), b.Max()))
	}
	if a.Max() < b.Max() {
		return *b
	}
	return *a
}

// leaves ends all limiters but one, which goes on calling the key. If the store
// keeps the policies of a key in one value, each call renews what nobody asks
// for. The bound of 54 hours is twice the day's period and some hours' slack;
// the 60 hours that pass are more than that.
func leaves(p *probe) {
	p.needsClock()
	p.needs(p.Expiries != nil, "Expiries")
	day, hour, week := p.list(algo.PerDay(1000)), p.list(algo.PerHour(1000)), p.list(algo.Per(1000, 7*24*time.Hour))
	renamed := p.named("-renamed", algo.PerHour(1000))
	p.passes("a", week, 1)
	kept := p.stored()
	p.passes("a", renamed, 1)
	p.passes("a", hour, 1)
	p.passes("a", day, 1)
	gone := p.stored()
	for range 60 { // two days and a half
		p.advance(time.Hour)
		p.passes("a", week, 1)
	}
	for name, left := range p.stored() {
		_, keeps := kept[name]
		was, ok := gone[name]
		p.must(ok, "%.160q was stored", name)
		p.must(keeps || left <= was && was < 54*time.Hour,
			"%.160q was to be held for %v, and is, now for %v", name, was, left)
	}
	p.must(len(gone) > len(kept), "the store holds %d names of four limiters", len(gone))
	p.used("a", renamed, 0)
	p.passes("a", renamed, 1)
}
