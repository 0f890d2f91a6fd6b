package storetest

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// shadowed stands in the order of the comment on backend.Store, behind the case Limit.
var shadowed = []sentence{
	{"ShadowDenies", shadowsDenyNothing, "A shadow policy denies nothing: a request passes if every other policy " +
		"has room, and of only shadows always."},
	{"ShadowCharges", shadowsCharge, "A request that passes charges each shadow that has room, and the others not; " +
		"a denied one charges none. A Record charges all."},
	{"ShadowState", shadowStates, "A shadow's State is its own: its RetryAfter is zero only if it has room. " +
		"It binds only where no other policy is listed, without its RetryAfter."},
	{"ShadowCount", shadowCounts, "A shadow's count is its own, also beside a policy of its name and algorithm."},
	{"RunUpTo", passesUpTo, "A Take of a run that is UpTo passes the first of its calls that every policy has room for, " +
		"and charges them at once; Passed is how many. It is denied if the first one has no room."},
	{"ShadowRun", shadowsOfRun, "A Take of a run charges each shadow the first of the calls that pass that it has room for. " +
		"Passed is how many, and RetryAfter is zero only if it has room for all of the run."},
	{"NextAfter", nextAfter, "NextAfter of a run that passed in part is the RetryAfter of the next call."},
}

// leasedShadows stand behind the case Record.
var leasedShadows = []sentence{
	{"ShadowLease", shadowsOfLease, "A lease does not touch a shadow that had no room, whatever settles it."},
}

// beside returns the shape's policies with a limit of 10, shadows of the same algorithms,
// and both as one list. It returns them in either order, since the first policy of a list
// is a case of its own in many stores.
func (p *probe) beside(limits ...int64) (enforced, shadows []backend.Policy, both [2][]backend.Policy) {
	enforced = p.list(p.day(10))
	for i, n := range limits {
		for _, s := range p.list(p.day(n), "shadow", string(rune('a'+i))) {
			s.Shadow = true
			shadows = append(shadows, s)
		}
	}
	shadows = p.carried(shadows...)
	return enforced, shadows, [2][]backend.Policy{p.carried(join(enforced, shadows)...), p.carried(join(shadows, enforced)...)}
}

func shadowsDenyNothing(p *probe) {
	enforced, shadows, both := p.beside(1, 5)
	for i, list := range both {
		key := string(rune('a' + i))
		for _, n := range []int64{1, 4, 5} {
			p.passes(key, list, n)
		}
		p.denied(key, list, 1)
		p.used(key, enforced, 10)
	}
	for range 3 {
		d := p.passes("alone", shadows, 4)
		p.must(d.RetryAfter == 0, "a take of shadows alone said %+v", d)
	}
	d := p.passes("alone", shadows, 1000)
	p.must(d.RetryAfter == 0, "a take above the limit of shadows alone said %+v", d)
}

func shadowsCharge(p *probe) {
	enforced, shadows, both := p.beside(4, 8)
	n := len(enforced)
	count := func(key string, few, many int64) {
		p.t.Helper()
		p.used(key, shadows[:n], few)
		p.used(key, shadows[n:], many)
	}
	for i, list := range both {
		key := string(rune('a' + i))
		for _, c := range []struct{ cost, few, many int64 }{{3, 3, 3}, {4, 3, 7}, {1, 4, 8}, {2, 4, 8}} {
			p.passes(key, list, c.cost)
			count(key, c.few, c.many)
		}
		fresh := key + "denied"
		p.passes(fresh, enforced, 10)
		before := p.stored()
		p.denied(fresh, list, 1)
		count(fresh, 0, 0)
		p.storedLess(before)
		if p.Store.Capabilities().Ops.Has(backend.Record) {
			p.ask(backend.Record, group(key, list, 6))
			count(key, 10, 14)
			p.used(key, enforced, 16)
		}
	}
}

func shadowStates(p *probe) {
	_, shadows, both := p.beside(4)
	for i, list := range both {
		key := string(rune('a' + i))
		g := backend.Group{Key: key, Policies: list, Cost: 3, Each: make([]backend.State, len(list))}
		for _, op := range []backend.Op{backend.Take, backend.Take, backend.Peek} { // the last two find room for 3 in no shadow
			d := p.ask(op, g)
			last := op != backend.Take || d.Used > 3
			for j, s := range g.Each {
				lacks := list[j].Shadow && last
				p.must((s.RetryAfter > 0) == lacks && (!list[j].Shadow || s.Used == 3), "the state of %s is %+v", s.Policy, s)
				p.must(!list[j].Shadow || s.Policy != d.Policy, "%v binds: %+v", list[j].Shadow, d)
			}
		}
		g.Cost = 5
		for j, s := range p.states(key, list) {
			p.must(!list[j].Shadow || s.Used == 3, "a shadow without room was charged: %+v", s)
		}
		p.ask(backend.Peek, g)
		for j, s := range g.Each {
			p.must(!list[j].Shadow || s.RetryAfter > 24*time.Hour, "a cost above the limit has the RetryAfter %v", s.RetryAfter)
		}
	}
	d := p.passes("alone", shadows, 3)
	p.must(slices.ContainsFunc(shadows, func(q backend.Policy) bool { return q.Name == d.Policy }), "%+v binds", d)
}

func shadowCounts(p *probe) {
	enforced, shadow := p.list(p.day(10)), p.list(p.day(10))
	for i := range shadow {
		shadow[i].Shadow = true
	}
	shadow = p.carried(shadow...)
	p.passes("a", enforced, 7)
	p.asNew("a", shadow)
	p.passes("a", shadow, 2)
	p.used("a", enforced, 7)
	p.reset("a", shadow)
	p.used("a", enforced, 7)
	p.asNew("a", shadow)
}

func shadowsOfRun(p *probe) {
	enforced, shadows, both := p.beside(4)
	for i, list := range both {
		key := string(rune('a' + i))
		for _, c := range []struct {
			calls, used, counts, passed int64
		}{{3, 3, 3, 3}, {3, 4, 6, 1}, {4, 4, 10, 0}, {2, 4, 10, 0}} {
			g := group(key, list, c.calls)
			g.Run, g.Each = c.calls, make([]backend.State, len(list))
			d, err := p.do(backend.Request{Op: backend.Take, Group: g})
			p.must(err == nil && d.Allowed == (c.calls > 2) && (d.Passed == c.calls) == d.Allowed, "a run of %d calls said %+v, %v", c.calls, d, err)
			for j := range list {
				if s := &g.Each[j]; list[j].Shadow {
					p.must(int64(s.Passed) == c.passed && (s.RetryAfter == 0) == (c.passed == c.calls), "a shadow of a run of %d calls: %+v", c.calls, s)
				}
			}
			p.used(key, shadows, c.used)
			p.used(key, enforced, c.counts)
		}
	}
	p.shadowsUpTo(enforced, shadows, both)
}

func (p *probe) shadowsUpTo(enforced, shadows []backend.Policy, both [2][]backend.Policy) {
	for i, list := range both {
		key := string(rune('c' + i))
		for _, c := range []struct{ calls, passed, used int64 }{{3, 3, 3}, {4, 4, 4}, {5, 3, 4}} {
			d := p.upTo(key, list, c.calls)
			p.must(d.Allowed && d.Passed == c.passed, "of a run of %d calls beside shadows passed %+v", c.calls, d)
			p.used(key, shadows, c.used)
		}
		d := p.upTo(key, list, 3)
		p.must(!d.Allowed && d.Passed == 0, "a run without room said %+v", d)
		p.used(key, enforced, 10)
	}
	d := p.upTo("alone", shadows, 7)
	p.must(d.Allowed && d.Passed == 7 && d.NextAfter == 0, "a run of shadows alone said %+v", d)
	p.used("alone", shadows, 4)
}

func shadowsOfLease(p *probe) {
	enforced, shadows, both := p.beside(4, 8)
	n := len(enforced)
	for i, list := range both {
		for _, actual := range []int64{0, 2, 5, 9} {
			key := string([]rune{rune('a' + i), rune('a' + actual)})
			r := p.reserved(key, list, 5)
			p.used(key, shadows[:n], 0)
			r.settles(actual)
			p.used(key, enforced, actual)
			p.used(key, shadows[:n], 0)
			p.used(key, shadows[n:], actual)
		}
		key := string([]rune{rune('a' + i), 'z'})
		r := p.reserved(key, list, 5)
		r.gives(backend.Extend, nil, "an Extend")
		r.settles(2000)
		p.used(key, shadows[:n], 0)
		p.used(key, shadows[n:], 2000)
	}
	if p.Store.Check([]backend.Policy{policy("slots", algo.InFlight(1))}) != nil {
		return
	}
	slot := policy("slots", algo.InFlight(1))
	slot.Shadow = true
	list := p.carried(join(enforced, []backend.Policy{slot})...)
	first, second := p.reserved("slots", list, 1), p.reserved("slots", list, 1)
	p.used("slots", list[len(enforced):], 1)
	second.settles(1)
	p.used("slots", list[len(enforced):], 1)
	first.settles(1)
	p.used("slots", list[len(enforced):], 0)
}
