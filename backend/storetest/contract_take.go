package storetest

import (
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// fits spends a limit in several costs and at once, and looks for the edge: the
// last unit must pass and none after it. Then it takes another cost of each
// policy: a store that reads Cost where Costs is set, or the first of Costs for
// all, charges the wrong units.
func fits(p *probe) {
	list, used := p.list(p.day(10)), int64(0)
	for _, n := range []int64{1, 2, 6, 1} {
		d := p.passes("a", list, n)
		p.must(d.Granted == n, "a take of %d that passed granted %d", n, d.Granted)
		used += n
		p.used("a", list, used)
	}
	p.denied("a", list, 1)
	p.fill("at once", list)
	p.used("at once", list, 10)
	g := backend.Group{Key: "costs", Policies: list, Costs: ramp(list)}
	p.takes(g, true)
	p.takes(g, true)
	for i, s := range p.states("costs", list) {
		p.must(s.Used == 2*g.Costs[i], "%s was charged %d units, want %d", s.Policy, s.Used, 2*g.Costs[i])
	}
}

// costsNothing lists the policy that pays nothing last and first: the binding
// policy is found in another order then, and a loop that ends at the first cost
// of 0 forgets the policies behind it.
func costsNothing(p *probe) {
	for i := range p.shape.kinds {
		paid, free := p.policy("paid", i, p.day(20)), p.policy("free", i+1, p.day(10))
		low := p.policy("free", i+1, p.day(5))
		asksFree(p, fmt.Sprint("last", i), p.carried(paid, free), p.carried(paid, low), 1)
		asksFree(p, fmt.Sprint("first", i), p.carried(free, paid), p.carried(low, paid), 0)
	}
}

// asksFree takes 3 units of a list's paid policy and none of the free one. The
// free policy is new, then spent, which does not deny yet, then over the lower
// limit of the list low, which does.
func asksFree(p *probe, key string, list, low []backend.Policy, free int) {
	g := backend.Group{Key: key, Policies: list, Costs: []int64{3, 3}}
	g.Costs[free] = 0
	paid, unpaid := list[1-free:2-free], list[free:free+1]
	p.passes(key, paid, 1)
	stored := p.stored()
	p.takes(g, true)
	p.takes(g, true)
	p.used(key, paid, 7)
	p.asNew(key, unpaid)
	for name := range p.stored() { // what is paid for may be held longer
		_, ok := stored[name]
		p.must(ok, "%.160q was stored", name)
	}
	p.passes(key, unpaid, 10)
	p.takes(g, true) // at the limit
	g.Policies = low
	d := p.takes(g, false)
	p.must(d.Policy == "free" && d.RetryAfter > 0, "10 used of 5, and a cost of 0 gave %+v", d)
	p.used(key, list, 10)
}

// deniesAll puts the policy without room first and last. First, a store that
// charges as it goes would stop in time; last, it has charged the others. Then
// it asks for what every policy but the last has room for, at equal limits:
// only the costs differ.
func deniesAll(p *probe) {
	list := p.list(p.day(10))
	for i := range p.shape.kinds {
		one := p.carried(p.policy("one", i, p.day(1)))
		deniesOf(p, fmt.Sprint("first", i), p.carried(join(one, list)...))
		deniesOf(p, fmt.Sprint("last", i), p.carried(join(list, one)...))
	}
	list = p.carried(p.policy("wide", 0, p.day(10)), p.policy("narrow", 1, p.day(10)))
	g := backend.Group{Key: "costs", Policies: list, Costs: []int64{1, 6}}
	p.takes(g, true)
	still := p.still("costs", list)
	p.takes(g, false)
	still()
}

// deniesOf spends a list whose policy "one" has room for one unit.
func deniesOf(p *probe, key string, list []backend.Policy) {
	p.passes(key, list, 1)
	still := p.still(key, list)
	for range 3 {
		d := p.denied(key, list, 1)
		p.must(d.Policy == "one", "the binding policy is %q, want the one without room", d.Policy)
		p.must(d.Granted == 0, "a denied take granted %d", d.Granted)
	}
	still()
}

// deniedStores repeats a denial that room is left under: a store that counts
// denials, or that renews the expiry, would deny the last take too. Then one
// policy denies: the others were never charged, so nothing of them may be
// stored.
func deniedStores(p *probe) {
	list := p.list(p.day(10))
	p.passes("a", list, 8)
	still := p.still("a", list)
	first := p.denied("a", list, 3)
	for range 20 {
		d := p.denied("a", list, 3)
		p.must(p.same(d.State, first.State), "a denial said\n\t%+v\nand after more of them\n\t%+v", first.State, d.State)
	}
	still()
	p.passes("a", list, 2)
	full := p.carried(p.policy("full", 0, p.day(1)))
	p.passes("b", full, 1)
	still = p.still("b", list)
	p.denied("b", join(list, full), 1)
	p.denied("b", join(full, list), 1)
	still()
	p.asNew("b", list)
}

// peeks asks at a new key, in mid-limit on both sides of what remains, and at a
// spent key: a peek of nothing passes there, since it exceeds nothing.
func peeks(p *probe) {
	list := p.list(p.day(10))
	stored := p.stored()
	p.must(p.peek("nobody", list, 10).Allowed, "a peek of all at a new key was denied")
	p.storedLess(stored)
	for _, n := range []int64{1, 3, 4, 6, 7, 10} {
		peeksBeside(p, fmt.Sprint("cost ", n), list, n)
	}
	p.fill("full", list)
	p.must(p.peek("full", list, 0).Allowed, "a peek of nothing at a spent key was denied")
	p.must(!p.peek("full", list, 1).Allowed, "a peek of a unit at a spent key passed")
}

// peeksBeside peeks and takes n of a key of which 4 units are used. Each cost
// has its own key, so that the take does not decide the next peek.
func peeksBeside(p *probe, key string, list []backend.Policy, n int64) {
	p.passes(key, list, 4)
	still := p.still(key, list)
	said := p.peek(key, list, n)
	still()
	did := p.take(key, list, n)
	p.must(said.Allowed == did.Allowed, "a peek of %d said %v, the take %v", n, said.Allowed, did.Allowed)
	p.must(said.Used == 4 && said.Remaining == 10*p.k-4, "a peek of %d at 4 of %d said %+v", n, 10*p.k, said.State)
	p.must((said.RetryAfter-did.RetryAfter).Abs() <= p.slack(),
		"a peek of %d said to retry after %v, the take %v", n, said.RetryAfter, did.RetryAfter)
}
