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

// Identity has limiters that give one policy name different algorithms or
// numbers, as a rolling deploy does.
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

// deploys makes 3,000 calls inside one window of both, by turns.
func deploys(p *probe) {
	p.needs(p.Apart, "Apart")
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

// untouched has a limiter of another period call a spent key.
func untouched(p *probe) {
	p.needs(p.Apart, "Apart")
	day, hour := p.list(algo.PerDay(100)), p.list(algo.PerHour(5))
	p.passes("a", day, 100)
	before := p.states("a", day)
	if p.shape.name == "TokenBucket" { // one level for all rates
		p.denied("a", hour, 1)
		return
	}
	if p.shape.name == "All" { // but for the bucket, which is spent
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

// pairs is how many pairs of limiters are drawn.
const pairs = 150

// agree has two limiters call one key by turns. Where their identities differ,
// each is answered as if it were alone; else they share one count.
func agree(p *probe, r *rand.Rand) {
	p.needs(p.Apart, "Apart")
	p.needsClock()
	var lists [2][]backend.Policy
	for i := range lists {
		lists[i] = p.carried(policy("api", drawn(r)))
	}
	if r.IntN(3) == 0 {
		lists[1] = p.carried(policy("api", sibling(r, lists[0][0].Algorithm)))
	}
	a, b := &lists[0][0].Algorithm, &lists[1][0].Algorithm
	shared := a.Identity() == b.Identity()
	both := oracle.New(greater(a, b))
	for range 60 {
		i := r.IntN(2)
		mine := &lists[i][0].Algorithm
		p.advance(time.Duration(r.Int64N(int64(mine.Limit().Period))) / time.Duration(1+r.IntN(20)) / tick * tick)
		n := 1 + r.Int64N(1+mine.Max()/3)
		other := p.states("both", lists[1-i])
		d := p.take("both", lists[i], n)
		if shared {
			if d.Allowed { // and a bucket's level is not leaking yet, by whichever rate
				both.Add(p.now, n)
				x, y := p.states("both", lists[0])[0], p.states("both", lists[1])[0]
				p.must(x.Used == y.Used, "%v counts %d units, %v %d", a, x.Used, b, y.Used)
			}
			continue
		}
		p.unchanged("both", lists[1-i], other)
		alone := p.take(fmt.Sprint("alone ", i), lists[i], n)
		p.must(d.Allowed == alone.Allowed && (p.Cached || p.same(d.State, alone.State)),
			"beside %v, %v says\n\t%+v, alone\n\t%+v", &lists[1-i][0].Algorithm, mine, d.State, alone.State)
	}
	if err := both.Check(); shared && err != nil {
		p.errorf("%v and %v: %v", a, b, err)
	}
}

// drawn returns one of all algorithms, with small numbers.
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

// leaves lets limiters go, one by one, while another one goes on calling. A name
// that the store holds is gone then, or was to be held for no longer anyway.
func leaves(p *probe) {
	p.needs(p.Apart, "Apart")
	p.needsClock()
	p.needs(p.Expiries != nil, "Expiries")
	day, hour, week := p.list(algo.PerDay(1000)), p.list(algo.PerHour(1000)), p.list(algo.Per(1000, 7*24*time.Hour))
	renamed := p.list(algo.PerHour(1000))
	for i := range renamed {
		renamed[i].Name += "-renamed"
	}
	p.passes("a", week, 1)
	kept := p.stored()
	p.passes("a", join(renamed), 1)
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
		p.must(keeps || left <= was && was < 54*time.Hour, "%.160q was to be held for %v, and is, now for %v", name, was, left)
	}
	p.must(len(gone) > len(kept), "the store holds %d names of four limiters", len(gone))
	p.used("a", renamed, 0)
	p.passes("a", join(renamed), 1)
}
