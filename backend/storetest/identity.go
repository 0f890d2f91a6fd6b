package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

const apart = "algorithms of another identity under one name count apart"

// identities and pairs give one policy name different algorithms or numbers, as the
// limiters of a rolling deploy do. Untouched needs no hook, Leaves needs SetNow and
// Expiries, pairs need SetNow.
var identities = []sentence{
	{"Untouched", untouched, apart},
	{"Leaves", leaves, "what no limiter asks for any more leaves within twice its period, " +
		"also where its key stays in use"},
}

func pairs() (cases []sentence) {
	kinds := rule.Kinds()
	for seed := range steps(1, 5) {
		for i, first := range kinds {
			cases = append(cases, pair(seed, first, first, true))
			for _, second := range kinds[i:] {
				cases = append(cases, pair(seed, first, second, false))
			}
		}
	}
	return cases
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
		day, hour, before = slices.Delete(day, 1, 2), slices.Delete(hour, 1, 2), slices.Delete(before, 1, 2)
	}
	p.passes("a", hour, 3)
	p.unchanged("a", day, before)
	p.used("a", hour, 3)
	p.denied("a", day, 1)
	p.reset("a", hour)
	p.unchanged("a", day, before)
	p.used("a", hour, 0)
}

// pair draws two limiters of these kinds. If they share one identity, they most
// often differ in their numbers.
func pair(seed int, a, b rule.Kind, share bool) sentence {
	return sentence{fmt.Sprint("Pair", seed, a, b, share), func(p *probe) {
		p.dice = rand.New(rand.NewPCG(uint64(seed), uint64(a)<<8+uint64(b)))
		first, second := p.drawn(a), p.drawn(b)
		for share && second.Identity() != first.Identity() {
			second = p.drawn(b)
		}
		agree(p, first, second)
	}, apart}
}

// agree alternates two limiters on one key. Where their identities differ, each
// gets the answer that it gets on a key of its own. Else they share one count,
// which must stay within the bound of the greater one.
func agree(p *probe, first, second algo.Algorithm) {
	p.needsClock()
	lists := [2][]backend.Policy{p.carried(policy("api", first)), p.carried(policy("api", second))}
	both := oracle.New(greater(first, second))
	for range steps(40, 60) {
		i := p.dice.IntN(2)
		period, most := int64(lists[i][0].Algorithm.Limit().Period), lists[i][0].Algorithm.Max()
		p.advance(time.Duration(p.dice.Int64N(period)) / time.Duration(1+p.dice.IntN(20)) / tick * tick)
		n := 1 + p.dice.Int64N(1+most/3)
		other := p.states("both", lists[1-i])
		d := p.take("both", lists[i], n)
		if first.Identity() != second.Identity() {
			p.unchanged("both", lists[1-i], other)
			alone := p.take(fmt.Sprint("alone ", i), lists[i], n)
			p.must(d.Allowed == alone.Allowed && (p.Cached || p.same(d.State, alone.State)),
				"beside another, %v says\n\t%+v, alone\n\t%+v", &lists[i][0].Algorithm, d.State, alone.State)
		} else if d.Allowed { // a bucket's level has not leaked yet, by either rate
			both.Add(p.now, n)
			x, y := p.states("both", lists[0])[0], p.states("both", lists[1])[0]
			p.must(x.Used == y.Used, "%v counts %d units, %v %d", &first, x.Used, &second, y.Used)
		}
	}
	err := both.Check()
	p.must(err == nil, "%v and %v: %v", &first, &second, err)
}

// drawn returns an algorithm of a kind, with numbers so small that forty calls
// spend it.
func (p *probe) drawn(k rule.Kind) algo.Algorithm {
	period := []time.Duration{100 * time.Millisecond, sec, 7 * sec, time.Minute}[p.dice.IntN(4)]
	small := func(least, most int64) int64 { return min(most, least+p.dice.Int64N(12)) }
	return k.Random(algo.Per(small(1, 12), period), small)
}

// greater returns what holds of two algorithms of one identity together: the
// greater limit, or the greatest rate, the greatest burst and the longest delay.
func greater(a, b algo.Algorithm) algo.Algorithm {
	if a.Max() < b.Max() {
		a, b = b, a
	}
	x, y := a.Limit(), b.Limit()
	if x.Events*int64(y.Period) < y.Events*int64(x.Period) {
		x = y
	}
	switch a.Kind() {
	case rule.KindTokenBucket:
		return algo.TokenBucket(x, a.Max())
	case rule.KindLeakyQueue:
		_, i, _, _, _ := a.Numbers(0)
		_, j, _, _, _ := b.Numbers(0)
		return algo.LeakyQueue(x, a.Max(), time.Duration(max(i, j))*tick)
	}
	return a
}

// leaves ends all limiters but one, which goes on calling the key. If the store
// keeps the policies of a key in one value, each call renews what no call asks
// for. The bound of 54 hours is twice the day's period and some hours' slack;
// the 60 hours that pass are more than that.
func leaves(p *probe) {
	p.needsClock()
	p.needs(p.Expiries != nil, "Expiries")
	day, hour, week := p.list(algo.PerDay(1000)), p.list(algo.PerHour(1000)), p.list(algo.Per(1000, 7*24*time.Hour))
	renamed := p.list(algo.PerHour(1000), "-renamed")
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
