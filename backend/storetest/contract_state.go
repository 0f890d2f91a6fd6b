package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// binds draws lists of policies that are alike in some number, so that all the
// ways to choose the binding one occur. Two periods per limit make denials whose
// RetryAfter differ while Remaining is equal. Then it lists two policies whose
// states are equal, in both orders. A store that keeps the last of equals answers
// right in one of them.
func binds(p *probe) {
	var list []backend.Policy
	for i, n := range []int64{6, 4, 4, 9} {
		list = append(list, p.policy(fmt.Sprint("day", i), i, algo.PerDay(n)),
			p.policy(fmt.Sprint("long", i), i, algo.Per(n, 72*time.Hour)))
	}
	count := map[bool]int{}
	for round := range 60 {
		var some []backend.Policy // one to all, in any order
		for _, i := range p.dice.Perm(len(list))[:1+p.dice.IntN(len(list))] {
			some = append(some, list[i])
		}
		p.carried(some...)
		for _, op := range []backend.Op{backend.Peek, backend.Take} {
			each := make([]backend.State, len(some))
			g := backend.Group{Key: fmt.Sprint(round % 6), Policies: some, Cost: 1 + p.dice.Int64N(2), Each: each}
			d := p.ask(op, g)
			p.binds(d, each)
			p.must(d.Allowed == (d.RetryAfter == 0), "allowed is %v with %+v", d.Allowed, d.State)
			count[d.Allowed]++
		}
	}
	p.must(min(count[true], count[false]) > 10, "requests passed: %v, so the case checks one side only", count)
	a, b := list[2], list[4]
	b.Algorithm = a.Algorithm
	for i, list := range [][]backend.Policy{{a, b}, {b, a}} {
		p.carried(list...)
		for range 5 { // the fifth is denied
			d := p.take(fmt.Sprint("tie", i), list, 1)
			p.must(d.Policy == list[0].Name, "of equals %s answered, listed first is %s", d.Policy, list[0].Name)
		}
	}
}

// binds requires that the decision's state is that of the binding policy. The
// rule is written out here, not called: backend.Binding may be wrong itself.
func (p *probe) binds(d backend.Decision, each []backend.State) {
	want := slices.MinFunc(each, func(a, b backend.State) int {
		if a.RetryAfter != 0 || b.RetryAfter != 0 {
			return cmp.Compare(b.RetryAfter, a.RetryAfter)
		}
		return cmp.Compare(a.Remaining, b.Remaining)
	})
	p.must(d.State == want, "of\n\t%+v\nthe decision has\n\t%+v\nwant\n\t%+v", each, d.State, want)
}

// fillsEach charges every policy another number of units. In reverse order the
// states of a store that fills them by name, or as stored, are in wrong places.
func fillsEach(p *probe) {
	list := p.list(p.day(10))
	for i := range p.shape.kinds {
		list = append(list, p.policy(fmt.Sprint("q", i), i, algo.Per(int64(8+i), 48*time.Hour)))
	}
	p.carried(list...)
	slices.Reverse(list)
	for i := range list {
		p.passes("a", list[i:i+1], int64(1+i%5))
	}
	// A request has room for states that still holds others. The states are those
	// that the policies have by themselves: after a take that passed, else before it.
	old := backend.State{Policy: "left over", Limit: -1, Used: -1, Remaining: -1, RetryAfter: -1, ResetAfter: -1}
	for i, n := range []int64{1, 1, 7, 7, 2, 2, 6, 6, 1, 1} {
		op := []backend.Op{backend.Peek, backend.Take}[i%2]
		want, each := p.alone("a", list, n), slices.Repeat([]backend.State{old}, len(list))
		d := p.ask(op, backend.Group{Key: "a", Policies: list, Cost: n, Each: each})
		if d.Allowed && op == backend.Take {
			want = p.alone("a", list, 0)
		}
		p.must(slices.EqualFunc(each, want, p.same),
			"a %v of %d (passed: %v) filled\n\t%+v\nwant\n\t%+v", op, n, d.Allowed, each, want)
	}
}

// alone returns each policy's state for n units if nothing else is listed.
func (p *probe) alone(key string, list []backend.Policy, n int64) (states []backend.State) {
	for i := range list {
		states = append(states, p.peek(key, list[i:i+1], n).State)
	}
	return states
}

// counted takes unit by unit past the limit: whatever a state's numbers are,
// exact or estimated, they agree with each other.
func counted(p *probe) {
	tight := p.list(p.day(3))
	list := p.carried(join(p.list(algo.Per(5*p.k, 48*time.Hour), "-wide"), tight)...)
	each := make([]backend.State, len(list))
	for n := range 3*p.k + 2 {
		for _, op := range []backend.Op{backend.Peek, backend.Take} {
			d := p.ask(op, backend.Group{Key: "a", Policies: list, Cost: 1, Each: each})
			p.must(d.Allowed == (n < 3*p.k) && d.Known != backend.NotCounted, "%v %d: %+v", op, n+1, d)
			p.binds(d, each)
			for i, s := range each {
				limit := list[i].Algorithm.Max()
				p.must(s.Known != backend.NotCounted && s.Policy == list[i].Name && s.Limit == limit && s.Used+s.Remaining == limit,
					"a %v says of %s %+v", op, list[i].Name, s)
			}
		}
	}
}

// remaining checks what is said to remain by taking it. On a denial too: a
// client that takes fewer units relies on it.
func remaining(p *probe) {
	list := p.list(p.day(10))
	for _, n := range []int64{3, 4, 5, 2, 2, 1, 1} { // 5 and the second 2 are denied
		d := p.take("a", list, n)
		p.must(d.Limit == 10 && d.Remaining == 10-d.Used, "allowed: %v, of 10: %+v", d.Allowed, d.State)
		p.must(p.peek("a", list, d.Remaining).Allowed, "what remains does not pass: %+v", d.State)
		p.must(d.Used == 0 || !p.peek("a", list, d.Remaining+1).Allowed, "one more than remains passes: %+v", d.State)
	}
	low := p.list(p.day(4)) // only a lowered limit can make the difference negative
	for _, n := range []int64{0, 1, 4} {
		d := p.peek("a", low, n)
		p.must(d.Used == 10 && d.Limit == 4 && d.Remaining == 0, "10 used of a limit lowered to 4 say %+v", d.State)
	}
}

// numbers returns limits and periods that divide well and badly. A store that
// rounds an interval, or computes in floating point, is a microsecond off at
// some of them. Spread keys make as many calls per sub-key: they get one.
func (p *probe) numbers() []algo.Limit {
	if p.k > 1 {
		return []algo.Limit{algo.Per(3*p.k+1, 10*time.Second+7*tick)}
	}
	return []algo.Limit{
		algo.Per(5, 10*time.Second), algo.Per(7, 10*time.Second+7*tick), algo.PerMinute(100),
		algo.PerHour(10), algo.PerDay(3), algo.Per(1000, 3*sec), algo.PerHour(1), algo.Per(99_991, 37*time.Hour+tick),
	}
}

func retryAfter(p *probe) {
	p.needsClock()
	for i, l := range p.numbers() {
		list, key := p.list(l), fmt.Sprint(i)
		for range 6 {
			p.passes(key, list, p.exact(key, list, p.untilDenied(key, list, l)))
		}
		if p.k == 1 { // the whole limit, whose wait is the longest that there is
			p.passes("spent"+key, list, l.Events)
			p.advance(l.Period / 7)
			p.exact("spent"+key, list, l.Events)
		}
	}
}

// untilDenied takes random costs at random instants until one is denied, and
// returns that cost.
func (p *probe) untilDenied(key string, list []backend.Policy, l algo.Limit) int64 {
	for range 1000 {
		n := 1 + p.dice.Int64N(l.Events/p.k)
		if !p.take(key, list, n).Allowed {
			return n
		}
		p.advance(time.Duration(p.dice.Int64N(int64(l.Period) / (8 * p.k))))
	}
	p.must(false, "a thousand takes of half the limit all passed")
	return 0
}

// exact goes to where a denied take of n is said to pass, and stops a
// microsecond before to see that it does not yet. Of a spread key only a peek
// reads all sub-keys, so only what it says is exact.
func (p *probe) exact(key string, list []backend.Policy, n int64) int64 {
	read := p.take
	if p.k > 1 {
		read = p.peek
	}
	d := read(key, list, n)
	if d.Allowed && p.k > 1 { // the take tried fewer sub-keys
		return n
	}
	p.must(!d.Allowed && d.RetryAfter > 0 && d.RetryAfter%tick == 0,
		"a denial of %d says to retry after %v", n, d.RetryAfter)
	p.advance(d.RetryAfter - tick)
	early := p.peek(key, list, n)
	p.must(!early.Allowed && early.RetryAfter == tick,
		"%d was denied by %+v, and a microsecond before it passes (%v): %+v", n, d.State, early.Allowed, early.State)
	p.advance(tick)
	late := p.peek(key, list, n)
	p.must(late.Allowed, "%d was denied by %+v, and does not pass then: %+v", n, d.State, late.State)
	return n
}

// resetAfter fades after a few costs, and after the whole limit at one instant.
// A level that one take left fades at another time than one that several left.
func resetAfter(p *probe) {
	p.needsClock()
	for i, l := range p.numbers() {
		list, key, most := p.list(l), fmt.Sprint(i), l.Events/p.k
		p.asNew(key, list)
		for range 4 {
			for range (1 + p.dice.Int64N(4)) * p.k {
				p.take(key, list, 1+p.dice.Int64N(most))
				p.advance(time.Duration(p.dice.Int64N(int64(l.Period) / (4 * p.k))))
			}
			p.fades(key, list)
			p.passes(key, list, most)
			p.fades(key, list)
		}
	}
}

// fades goes to where each policy is said to be unused, and stops a microsecond
// before to see that it is not yet. It goes in the order of those instants,
// since the clock can't be set back.
func (p *probe) fades(key string, list []backend.Policy) {
	states, start := p.states(key, list), p.now
	order := p.dice.Perm(len(list))
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(states[i].ResetAfter, states[j].ResetAfter) })
	for _, i := range order {
		s, one := states[i], list[i:i+1]
		at := start + s.ResetAfter.Microseconds()
		p.must((s.ResetAfter == 0) == (s.Used == 0), "used and reset disagree: %+v", s)
		if at > p.now {
			p.set(max(p.now, at-1))
			early := p.states(key, one)[0]
			p.must(early.Used > 0 && early.ResetAfter == tick,
				"%v: unused after %v, and a microsecond earlier %+v", &one[0].Algorithm, s.ResetAfter, early)
			p.set(at)
		}
		late := p.states(key, one)[0]
		p.must(late.Used == 0 && late.ResetAfter == 0,
			"%v: unused after %v, and then %+v", &one[0].Algorithm, s.ResetAfter, late)
	}
}

// pause lets an odd while pass, where the harness can.
func (p *probe) pause() {
	if p.SetNow != nil {
		p.advance(time.Duration(1 + p.dice.Int64N(int64(time.Second))))
	}
}
