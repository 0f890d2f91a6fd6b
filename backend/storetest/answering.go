package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

func binds(p *probe) {
	var list []backend.Policy
	for i, n := range []int64{6, 4, 4, 9} {
		list = append(list, policy(fmt.Sprint("day", i), p.shape.kind(i)(algo.PerDay(n))),
			policy(fmt.Sprint("long", i), p.shape.kind(i)(algo.Per(n, 72*time.Hour))))
	}
	passed, denied := 0, 0
	for round := range 60 {
		key := fmt.Sprint(round % 6)
		some := p.carried(p.some(list)...)
		for _, op := range []backend.Op{backend.Peek, backend.Take} {
			if bindsOf(p, op, key, some) {
				passed++
			} else {
				denied++
			}
		}
	}
	p.must(passed > 10 && denied > 10, "%d requests passed and %d did not: the case is not one", passed, denied)
	bindsTie(p, list[2], list[4])
}

// some returns one to all of the policies, in any order.
func (p *probe) some(list []backend.Policy) []backend.Policy {
	var some []backend.Policy
	for _, i := range p.dice.Perm(len(list))[:1+p.dice.IntN(len(list))] {
		some = append(some, list[i])
	}
	return some
}

func bindsOf(p *probe, op backend.Op, key string, list []backend.Policy) bool {
	each := make([]backend.State, len(list))
	d := p.ask(op, backend.Group{Key: key, Policies: list, Cost: 1 + p.dice.Int64N(2), Each: each})
	want := binding(each)
	p.must(d.State == want, "of\n\t%+v\nthe %v was answered by\n\t%+v\nwant\n\t%+v", each, op, d.State, want)
	p.must(d.Allowed == (d.RetryAfter == 0), "allowed is %v with %+v", d.Allowed, d.State)
	return d.Allowed
}

// binding picks the state that binds.
func binding(each []backend.State) backend.State {
	return slices.MinFunc(each, func(a, b backend.State) int {
		if a.RetryAfter != 0 || b.RetryAfter != 0 {
			return cmp.Compare(b.RetryAfter, a.RetryAfter)
		}
		return cmp.Compare(a.Remaining, b.Remaining)
	})
}

// bindsTie lists two policies that say the same.
func bindsTie(p *probe, a, b backend.Policy) {
	b.Algorithm = a.Algorithm
	for i, list := range [][]backend.Policy{{a, b}, {b, a}} {
		list, key := p.carried(list...), fmt.Sprint("tie", i)
		for range 5 { // the fifth is denied
			d := p.take(key, list, 1)
			p.must(d.Policy == list[0].Name, "of equals %s answered, listed first is %s", d.Policy, list[0].Name)
		}
	}
}

func fillsEach(p *probe) {
	list := p.list(algo.PerDay(10))
	for i := range p.shape.kinds {
		list = append(list, policy(fmt.Sprint("q", i), p.shape.kind(i)(algo.Per(int64(8+i), 48*time.Hour))))
	}
	p.carried(list...)
	slices.Reverse(list)
	for i := range list {
		p.passes("a", list[i:i+1], int64(1+i%5))
	}
	for _, n := range []int64{1, 7, 2, 6, 1} {
		p.fills(backend.Peek, "a", list, n)
		p.fills(backend.Take, "a", list, n)
	}
}

// alone returns what each policy says to n units where nothing else is listed.
func (p *probe) alone(key string, list []backend.Policy, n int64) []backend.State {
	p.t.Helper()
	var states []backend.State
	for i := range list {
		states = append(states, p.peek(key, list[i:i+1], n).State)
	}
	return states
}

// fills sends a request with room for states that still holds others, and
// requires what the policies say alone: what a take that passed left behind,
// else what the request met.
func (p *probe) fills(op backend.Op, key string, list []backend.Policy, n int64) {
	p.t.Helper()
	want, each := p.alone(key, list, n), make([]backend.State, len(list))
	for i := range each {
		each[i] = backend.State{Policy: "left over", Limit: -1, Used: -1, Remaining: -1, RetryAfter: -1, ResetAfter: -1}
	}
	d := p.ask(op, backend.Group{Key: key, Policies: list, Cost: n, Each: each})
	if d.Allowed && op == backend.Take {
		want = p.alone(key, list, 0)
	}
	p.must(slices.EqualFunc(each, want, p.same), "a %v of %d (passed: %v) filled\n\t%+v\nwant\n\t%+v", op, n, d.Allowed, each, want)
}

func counted(p *probe) {
	list := append(p.list(algo.PerDay(2)), policy("other", p.shape.kind(1)(algo.PerDay(3))))
	p.carried(list...)
	each := make([]backend.State, len(list))
	for _, op := range []backend.Op{backend.Peek, backend.Take, backend.Take, backend.Take, backend.Peek} { // the third take is denied
		d := p.ask(op, backend.Group{Key: "a", Policies: list, Cost: 1, Each: each})
		for _, s := range append(each, d.State) {
			p.must(s.Counted, "a %v says that %s was not counted: %+v", op, s.Policy, s)
		}
	}
}

func remaining(p *probe) {
	list := p.list(algo.PerDay(10))
	for _, n := range []int64{3, 4, 5, 2, 2, 1, 1} { // 5 and the second 2 are denied
		d := p.take("a", list, n)
		p.leaves("a", list, d)
	}
	low := p.list(algo.PerDay(4))
	for _, n := range []int64{0, 1, 4} {
		d := p.peek("a", low, n)
		p.must(d.Used == 10 && d.Limit == 4 && d.Remaining == 0, "10 used of a limit lowered to 4 say %+v", d.State)
	}
}

// leaves requires what is said to remain to be what would pass.
func (p *probe) leaves(key string, list []backend.Policy, d backend.Decision) {
	p.t.Helper()
	p.must(d.Limit == 10 && d.Remaining == 10-d.Used, "allowed: %v, of 10: %+v", d.Allowed, d.State)
	p.must(p.peek(key, list, d.Remaining).Allowed, "what remains does not pass: %+v", d.State)
	p.must(d.Used == 0 || !p.peek(key, list, d.Remaining+1).Allowed, "one more than remains passes: %+v", d.State)
}

// numbers are limits and periods that divide well and badly.
var numbers = []algo.Limit{
	algo.Per(5, 10*time.Second), algo.Per(7, 10*time.Second+7*time.Microsecond), algo.PerMinute(100),
	algo.PerHour(10), algo.PerDay(3), algo.Per(1000, 3*time.Second), algo.PerHour(1), algo.Per(99_991, 37*time.Hour+time.Microsecond),
}

func retryAfter(p *probe) {
	p.needsClock()
	for i, l := range numbers {
		list, key := p.list(l), fmt.Sprint(i)
		for range 6 {
			n, d := p.untilDenied(key, list, l)
			p.exact(key, list, n, d)
			p.passes(key, list, n)
		}
		p.passes("spent"+key, list, l.Events)
		p.advance(l.Period / 7)
		p.exact("spent"+key, list, l.Events, p.denied("spent"+key, list, l.Events))
	}
}

// untilDenied takes random costs at random instants until one is denied.
func (p *probe) untilDenied(key string, list []backend.Policy, l algo.Limit) (int64, backend.Decision) {
	p.t.Helper()
	for range 1000 {
		n := 1 + p.dice.Int64N(l.Events)
		if d := p.take(key, list, n); !d.Allowed {
			return n, d
		}
		p.advance(time.Duration(p.dice.Int64N(int64(l.Period / 8))))
	}
	p.must(false, "a thousand takes of half the limit all passed")
	return 0, backend.Decision{}
}

// exact goes to where a denied take of n is said to pass, and stops a
// microsecond before to see that it does not yet.
func (p *probe) exact(key string, list []backend.Policy, n int64, d backend.Decision) {
	p.t.Helper()
	p.must(d.RetryAfter > 0 && d.RetryAfter%tick == 0, "a denial says to retry after %v", d.RetryAfter)
	p.advance(d.RetryAfter - tick)
	early, i := p.peek(key, list, n), slices.IndexFunc(list, func(l backend.Policy) bool { return l.Name == d.Policy })
	p.must(i >= 0, "the state is that of %q, which is not listed", d.Policy)
	a := &list[i].Algorithm
	p.must(!early.Allowed, "%v: %d was denied for %v, and passes a microsecond earlier", a, n, d.RetryAfter)
	p.must(early.RetryAfter == tick, "%v: a microsecond before %d passes RetryAfter is %v", a, n, early.RetryAfter)
	p.advance(tick)
	late := p.peek(key, list, n)
	p.must(late.Allowed, "%v: %d was denied for %v, and does not pass then: %+v", a, n, d.RetryAfter, late.State)
}

func resetAfter(p *probe) {
	p.needsClock()
	for i, l := range numbers {
		list, key := p.list(l), fmt.Sprint(i)
		asNew(p, key, list)
		for range 4 {
			p.spend(key, list, l)
			p.fades(key, list)
			p.passes(key, list, l.Events)
			p.fades(key, list)
		}
	}
}

// spend takes a few times at random, and lets a random time pass after.
func (p *probe) spend(key string, list []backend.Policy, l algo.Limit) {
	for range 1 + p.dice.IntN(4) {
		p.take(key, list, 1+p.dice.Int64N(l.Events))
		p.advance(time.Duration(p.dice.Int64N(int64(l.Period / 4))))
	}
}

// fades goes to where each policy is said to be as new, and stops a
// microsecond before to see that it is not yet.
func (p *probe) fades(key string, list []backend.Policy) {
	p.t.Helper()
	states, start := p.states(key, list), p.now
	order := p.dice.Perm(len(list))
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(states[i].ResetAfter, states[j].ResetAfter) })
	for _, i := range order {
		s, at := states[i], start+states[i].ResetAfter.Microseconds()
		p.must((s.ResetAfter == 0) == (s.Used == 0), "used and reset disagree: %+v", s)
		if at > p.now+1 {
			p.set(at - 1)
		}
		if at > p.now {
			early := p.states(key, list[i:i+1])[0]
			p.must(early.Used > 0 && early.ResetAfter == tick, "%v: as new after %v, and a microsecond earlier %+v", &list[i].Algorithm, s.ResetAfter, early)
			p.set(at)
		}
		late := p.states(key, list[i:i+1])[0]
		p.must(late.Used == 0 && late.ResetAfter == 0, "%v: as new after %v, and then %+v", &list[i].Algorithm, s.ResetAfter, late)
	}
}

func charges(p *probe) {
	list, costs := p.list(algo.PerDay(10)), make([]int64, len(p.shape.kinds))
	for i := range costs {
		costs[i] = int64(1 + i%2)
	}
	last := p.charged(backend.Group{Key: "a", Policies: list, Cost: 3}, 0)
	p.pause()
	last = p.charged(backend.Group{Key: "a", Policies: list, Costs: costs}, last)
	p.pause()
	p.charged(backend.Group{Key: "a", Policies: list, Cost: 1}, last)
	c := new(backend.Receipt)
	d := p.ask(backend.Take, backend.Group{Key: "a", Policies: list, Cost: 10, Receipt: c})
	p.must(!d.Allowed && c.Outcome == backend.NotTaken, "a denied take (passed: %v) is charged as %+v", d.Allowed, c)
	d = p.ask(backend.Peek, backend.Group{Key: "a", Policies: list, Cost: 1})
	p.must(d.Receipt == nil, "a peek was charged: %+v", d.Receipt)
}

// pause lets an odd while pass, where the harness can.
func (p *probe) pause() {
	if p.SetNow != nil {
		p.advance(time.Duration(1 + p.dice.Int64N(int64(time.Second))))
	}
}

// charged takes and returns the instant that its charge counts from, which
// is now where the clock can be set, and else not before the last.
func (p *probe) charged(g backend.Group, last int64) int64 {
	p.t.Helper()
	c := &backend.Receipt{Key: "another", At: []int64{-1}, Cost: -1, Outcome: backend.Unknown}
	g.Receipt = c
	d := p.ask(backend.Take, g)
	p.must(d.Allowed && d.Receipt == c, "passed: %v, charge %p, want the request's %p", d.Allowed, d.Receipt, c)
	p.must(c.Outcome == backend.Taken && (c.Costs != nil || c.Cost == g.Cost) && slices.Equal(c.Costs, g.Costs), "the charge says %+v", c)
	p.must(c.Key == g.Key && len(c.At) == len(g.Policies), "the receipt names the key %q and the instants %v", c.Key, c.At)
	for _, at := range c.At {
		p.must(p.SetNow == nil || at == p.now, "the charge counts from %d, the clock stands at %d", at, p.now)
		p.must(at >= last, "the charge counts from %d, one before it from %d", at, last)
	}
	return slices.Max(c.At)
}
