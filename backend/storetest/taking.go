package storetest

import (
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

func fits(p *probe) {
	list := p.list(algo.PerDay(10))
	for _, n := range []int64{1, 2, 6, 1} {
		before := p.states("a", list)[0].Used
		d := p.passes("a", list, n)
		p.must(d.Granted == n, "a take of %d that passed granted %d", n, d.Granted)
		p.used("a", list, before+n)
	}
	p.passes("at once", list, 10)
	p.used("at once", list, 10)
	fitsCosts(p, list)
}

// fitsCosts takes another cost of each policy.
func fitsCosts(p *probe, list []backend.Policy) {
	costs := make([]int64, len(list))
	for i := range costs {
		costs[i] = int64(i + 1)
	}
	g := backend.Group{Key: "costs", Policies: list, Costs: costs}
	for range 2 {
		p.must(p.ask(backend.Take, g).Allowed, "a take of %d from each was denied", costs)
	}
	for i, s := range p.states("costs", list) {
		p.must(s.Used == 2*costs[i], "%s was charged %d units, want %d", s.Policy, s.Used, 2*costs[i])
	}
}

// costsNothing takes of one policy and asks another, first and last in the list.
func costsNothing(p *probe) {
	for i := range p.shape.kinds {
		paid, free := policy("paid", p.shape.kind(i)(algo.PerDay(20))), policy("free", p.shape.kind(i+1)(algo.PerDay(10)))
		low := policy("free", p.shape.kind(i+1)(algo.PerDay(5)))
		asksFree(p, "last", p.carried(paid, free), p.carried(paid, low), 1)
		asksFree(p, "first", p.carried(free, paid), p.carried(low, paid), 0)
		p.reset("last", []backend.Policy{paid, free})
		p.reset("first", []backend.Policy{paid, free})
	}
}

// asksFree takes 3 units of a list's paid policy, and none of the free one, which
// is free's in the list: new, then spent, then, in the list low, of a lower limit.
func asksFree(p *probe, key string, list, low []backend.Policy, free int) {
	costs := []int64{3, 3}
	costs[free] = 0
	paid := list[1-free : 2-free]
	p.passes(key, paid, 1)
	stored := p.stored()
	for range 2 {
		d := p.ask(backend.Take, backend.Group{Key: key, Policies: list, Costs: costs})
		p.must(d.Allowed, "a take of %d was denied by %+v", costs, d.State)
	}
	states := p.states(key, list)
	p.must(states[1-free].Used == 7 && states[free].Used == 0 && states[free].ResetAfter == 0, "two takes of %d after one unit used %+v", costs, states)
	p.storesNoMore(stored)
	p.passes(key, list[free:free+1], 10)
	p.must(p.ask(backend.Take, backend.Group{Key: key, Policies: list, Costs: costs}).Allowed, "a cost of 0 was denied at the limit")
	d := p.ask(backend.Take, backend.Group{Key: key, Policies: low, Costs: costs})
	p.must(!d.Allowed && d.Policy == "free" && d.RetryAfter > 0, "10 used of 5, and a cost of 0 gave %+v", d)
	p.used(key, paid, 10)
	p.used(key, list[free:free+1], 10)
}

func deniesAll(p *probe) {
	for i := range p.shape.kinds {
		one := policy("one", p.shape.kind(i)(algo.PerDay(1)))
		list := p.list(algo.PerDay(10))
		deniesOf(p, "first", p.carried(join([]backend.Policy{one}, list)...))
		deniesOf(p, "last", p.carried(join(list, []backend.Policy{one})...))
		p.reset("first", append(list, one))
		p.reset("last", append(list, one))
	}
	deniesCosts(p)
	deniesPastLimit(p)
}

// deniesOf spends a list whose policy "one" has room for one unit.
func deniesOf(p *probe, key string, list []backend.Policy) {
	p.passes(key, list, 1)
	before := p.states(key, list)
	for range 3 {
		d := p.denied(key, list, 1)
		p.must(d.Policy == "one", "the binding policy is %q, want the one without room", d.Policy)
		p.must(d.Granted == 0, "a denied take granted %d", d.Granted)
	}
	p.unchanged(key, list, before)
}

// deniesCosts asks for what every policy but the last has room for.
func deniesCosts(p *probe) {
	list := p.carried(policy("wide", p.shape.kind(0)(algo.PerDay(10))), policy("narrow", p.shape.kind(1)(algo.PerDay(10))))
	g := backend.Group{Key: "costs", Policies: list, Costs: []int64{1, 6}}
	p.must(p.ask(backend.Take, g).Allowed, "a take of 1 and 6 of 10 was denied")
	before := p.states("costs", list)
	p.must(!p.ask(backend.Take, g).Allowed, "a second take of 6 of 10 passed")
	p.unchanged("costs", list, before)
}

// deniesPastLimit looks for the edge unit by unit.
func deniesPastLimit(p *probe) {
	list := p.list(algo.PerDay(7))
	for range 7 {
		p.passes("edge", list, 1)
	}
	p.denied("edge", list, 1)
	p.used("edge", list, 7)
}

func deniedStores(p *probe) {
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 8)
	before, stored := p.states("a", list), p.stored()
	first := p.denied("a", list, 3)
	for range 20 {
		d := p.denied("a", list, 3)
		p.must(p.same(d.State, first.State), "a denial said\n\t%+v\nand after more of them\n\t%+v", first.State, d.State)
	}
	p.unchanged("a", list, before)
	p.storedLess(stored)
	p.passes("a", list, 2)
	deniedSibling(p)
}

// deniedSibling is denied by one policy: the others were never charged, so
// nothing of them may be stored.
func deniedSibling(p *probe) {
	full := p.carried(policy("full", p.shape.kind(0)(algo.PerDay(1))))
	p.passes("b", full, 1)
	fresh := p.list(algo.PerDay(10))
	stored := p.stored()
	p.denied("b", join(fresh, full), 1)
	p.denied("b", join(full, fresh), 1)
	p.storedLess(stored)
	for _, s := range p.states("b", fresh) {
		p.must(s.Used == 0 && s.ResetAfter == 0, "a policy that was never charged says %+v", s)
	}
}

func peeks(p *probe) {
	list := p.list(algo.PerDay(10))
	stored := p.stored()
	p.must(p.peek("nobody", list, 10).Allowed, "a peek of all at a new key was denied")
	p.storedLess(stored)
	for i, n := range []int64{1, 3, 4, 6, 7, 10} {
		peeksBeside(p, string(rune('a'+i)), list, n)
	}
	p.passes("full", list, 10)
	p.must(p.peek("full", list, 0).Allowed, "a peek of nothing at a spent key was denied")
}

// peeksBeside peeks and takes n where 4 of 10 units are used.
func peeksBeside(p *probe, key string, list []backend.Policy, n int64) {
	p.passes(key, list, 4)
	before, stored := p.states(key, list), p.stored()
	said := p.peek(key, list, n)
	p.unchanged(key, list, before)
	p.storedLess(stored)
	did := p.take(key, list, n)
	p.must(said.Allowed == did.Allowed, "a peek of %d said %v, the take %v", n, said.Allowed, did.Allowed)
	p.must(said.Used == 4 && said.Remaining == 6, "a peek of %d at 4 of 10 met %+v", n, said.State)
	p.must((said.RetryAfter-did.RetryAfter).Abs() <= p.passed(), "a peek of %d said to retry after %v, the take %v", n, said.RetryAfter, did.RetryAfter)
}

// passed is the most time that can go by between two calls of a case.
func (p *probe) passed() time.Duration {
	if p.SetNow != nil {
		return 0
	}
	return time.Minute
}
