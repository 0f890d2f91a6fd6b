package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// fits spends a limit in several costs and at once, and looks for the edge: the
// last unit must pass and none after it. Then it takes another cost of each
// policy. A store that reads Cost where Costs is set, or the first of Costs for
// all, charges the wrong units.
func fits(p *probe) {
	list, used := p.list(p.day(10)), int64(0)
	for _, n := range []int64{1, 2, 6, 1} {
		p.passes("a", list, n)
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

// costsNothing lists the policy that pays nothing last and first. The binding
// policy is found in another order then, and a loop that ends at the first cost
// of 0 forgets the policies behind it. The free policy is new, then spent, which
// does not deny yet, then over a lower limit, which does.
func costsNothing(p *probe) {
	for i := range p.shape.kinds {
		paid, free := p.carried(p.policy("paid", i, p.day(20))), p.carried(p.policy("free", i+1, p.day(10)))
		low := p.carried(p.policy("free", i+1, p.day(5)))
		for j, lists := range [][2][]backend.Policy{
			{join(paid, free), join(paid, low)}, {join(free, paid), join(low, paid)},
		} {
			g := backend.Group{Key: fmt.Sprint("a", i, j), Policies: p.carried(lists[0]...), Costs: []int64{3, 3}}
			g.Costs[1-j] = 0
			p.passes(g.Key, paid, 1)
			stored := p.stored()
			p.takes(g, true)
			p.takes(g, true)
			p.used(g.Key, paid, 7)
			p.asNew(g.Key, free)
			for name := range p.stored() { // what is paid for may be held longer
				_, ok := stored[name]
				p.must(ok, "%.160q was stored", name)
			}
			p.passes(g.Key, free, 10)
			p.takes(g, true) // at the limit
			p.used(g.Key, lists[0], 10)
			g.Policies = p.carried(lists[1]...)
			d := p.takes(g, false)
			p.must(d.Policy == "free" && d.RetryAfter > 0, "10 used of 5, and a cost of 0 gave %+v", d)
			p.used(g.Key, lists[0], 10)
		}
	}
}

// deniesAll puts the policy without room first and last. First, a store that
// charges as it goes would stop in time; last, it has charged the others. Then
// it asks for what every policy but the last has room for, at equal limits:
// only the costs differ.
func deniesAll(p *probe) {
	list := p.list(p.day(10))
	for i := range p.shape.kinds {
		one := p.carried(p.policy("one", i, p.day(1)))
		for j, both := range [][]backend.Policy{join(one, list), join(list, one)} {
			key := fmt.Sprint("a", i, j)
			p.passes(key, p.carried(both...), 1)
			still := p.still(key, both)
			for range 3 {
				d := p.denied(key, both, 1)
				p.must(d.Policy == "one", "the binding policy is %q, want the one without room", d.Policy)
			}
			still()
		}
	}
	list = p.carried(p.policy("wide", 0, p.day(10)), p.policy("narrow", 1, p.day(10)))
	g := backend.Group{Key: "costs", Policies: list, Costs: []int64{1, 6}}
	p.takes(g, true)
	still := p.still("costs", list)
	p.takes(g, false)
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
		p.must(p.same(d.State, first.State), "a denial said\n\t%+v\nand after more\n\t%+v", first.State, d.State)
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
// spent key. A peek of nothing passes there, since it exceeds nothing.
func peeks(p *probe) {
	list := p.list(p.day(10))
	stored := p.stored()
	p.must(p.peek("nobody", list, 10).Allowed, "a peek of all at a new key was denied")
	p.storedLess(stored)
	for _, n := range []int64{1, 3, 4, 6, 7, 10} { // each on a key of its own, or the take would decide the next peek
		key := fmt.Sprint("cost ", n)
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
	p.fill("full", list)
	p.must(p.peek("full", list, 0).Allowed, "a peek of nothing at a spent key was denied")
	p.must(!p.peek("full", list, 1).Allowed, "a peek of a unit at a spent key passed")
}

// resets spends two keys and resets some policies of one. What was not listed
// must keep its count: an operator who frees one policy must not free all.
func resets(p *probe) {
	list, kept := p.list(p.day(10)), p.list(p.day(20), "-kept")
	both := p.carried(join(list, kept)...)
	p.fill("a", both)
	p.fill("b", both)
	b, a := p.states("b", both), p.states("a", kept)
	p.reset("a", list)
	p.unchanged("b", both, b)
	p.unchanged("a", kept, a)
	p.asNew("a", list)
	p.fill("a", both) // unused is also: all of it can be used again
	p.denied("a", list, 1)
	p.reset("nobody", list)
	p.asNew("nobody", list)
	p.passes("one", list, 5)
	for i := range list {
		p.reset("one", list[i:i+1])
		for j, s := range p.states("one", list) {
			p.must((s.Used == 0) == (j <= i), "after the first %d were reset %s says %+v", i+1, s.Policy, s)
		}
	}
}

// names charges one quota through lists of other lengths and orders, to its
// limit. A store that names a count by its place in the list, or by the list,
// counts some of these separately. Then it uses names that a careless store could
// take for one another. They differ by case, by prefix, by a separator that it joins names
// with, by length.
func names(p *probe) {
	const limit = 1 + 2 + 3 + 4 + 5 + 6
	quota, search := p.list(p.day(limit)), p.carried(p.policy("search", 1, p.day(40)))
	one := quota[:1]
	added := p.carried(join(p.carried(p.policy("added", 2, p.day(limit))), one, search)...) // as a rolling deploy does
	lists := [][]backend.Policy{quota, join(quota, search), join(search, quota), one, join(search, one), added}
	used := int64(0)
	for i, list := range lists {
		p.passes("a", list, int64(i+1))
		used += int64(i + 1)
		p.used("a", one, used)
	}
	p.used("a", search, 2+3+5+6)
	for range limit * (p.k - 1) {
		p.passes("a", one, 1)
	}
	for _, list := range lists {
		p.denied("a", list, 1)
	}
	list, long := []backend.Policy(nil), strings.Repeat("a", 64)
	for i, name := range []string{"a", "A", "aa", "a-", "a_", "-a", "_", "-", "0", "a0", long[1:], long} {
		list = append(list, p.policy(name, i, p.day(100)))
	}
	p.carried(list...)
	for i := range list {
		p.passes("names", list[i:i+1], int64(i+1))
	}
	for i, s := range p.states("names", list) {
		p.must(s.Used == int64(i+1), "%q counts %d units, want %d", s.Policy, s.Used, i+1)
	}
}

// limits lowers a limit below what is used, and raises it. A store that keeps
// what remains, instead of what is used, answers both with the old limit.
func limits(p *probe) {
	ten, five, twenty := p.list(p.day(10)), p.list(p.day(5)), p.list(p.day(20))
	p.passes("a", ten, 6)
	p.used("a", five, 6)
	p.denied("a", five, 1)
	p.must(p.peek("a", five, 5).Remaining == 0, "6 of 5 used leave some")
	p.used("a", twenty, 6)
	p.passes("a", twenty, 14)
	p.used("a", ten, 20)
	p.denied("a", ten, 1)
	p.denied("a", twenty, 1)
	// In mid-day a bucket has leaked a part of a unit. A store that keeps it as
	// the instant at which it is empty would scale what is used by the new rate.
	was, is := p.list(algo.PerDay(100_000)), p.list(algo.PerDay(110_000))
	for _, n := range []int64{40_000, 7, 19_993, 1} {
		p.pause()
		p.passes("noon", was, n)
	}
	before := p.states("noon", was)
	for i, s := range p.states("noon", is) {
		b := before[i]
		p.must(b.Used > 59_000 && s.Used == b.Used && s.Remaining == b.Remaining+10_000,
			"raised by 10,000\n\t%+v\nis\n\t%+v", b, s)
	}
}

// trickyKeys are keys that a store could take for one another, or for
// something that it means itself. Examples are hash tags, separators, escapes, white space,
// invalid and unnormalized UTF-8, numbers that follow a key. Others are long keys that
// differ where a store cuts or hashes them.
func trickyKeys() []string {
	long := strings.Repeat("k", backend.MaxKey)
	list := []string{
		"a", "A", " a", "a ", "aa", "\x00", "a\x00", "a\x00b", "\x00a", "a\n", "a\r\n", "a\t",
		"{", "}", "{}", "{a}", "{a", "a}", "}{", "{{a}}", "{a}{b}", "{a}b", "a{b}", "{}a",
		"a:b", "a:", ":a", ":", "::", "a/b", "a#1", "a~1", "a|b", "a,b", "a.b", "a*", "a?", "[a]", "%61", `a\`, `"a"`,
		"'a'", "0", "00", "1", "-1", "1e0", "nil", "p0", "p1", "a:p0", "a:p1",
		"ä", "a\u0308", "\xe4", "\xff", "\xfe", "\xff\xfe", "日本", "\u202e",
		"user:4", "user:42", "user:420",
		"a1", "a10", "1a", "10a", "a/1", "a:1", "a\x001", "~1~a", "~1a", "1~a", "{a}1", "1{a}",
		long, long[1:] + "a", long[1:], long[2:] + "a",
	}
	for n := 20; n <= 140; n += 10 { // where stores start to shorten keys
		list = append(list, long[:n], long[:n-1]+"j")
	}
	return list
}

var tagged = regexp.MustCompile(`\{.*\}`)

// keys charges every tricky key another number of units before it looks at any:
// two that share a count can't both have their own number. Then it asks for the
// names that the store itself made up, and for the parts of them that pick a
// slot. A caller who learns them must not reach a count by using one as a key.
func keys(p *probe) {
	list, all := p.list(p.day(1000)), trickyKeys()
	for i, key := range all {
		p.passes(key, list, int64(i+1))
	}
	for i, sub := range []string{"1", "2", "10"} { // no key reaches a sub-key's count
		if p.k == 1 {
			g := backend.Group{Key: "a", Sub: sub, Policies: list, Cost: int64(i + 1)}
			d := p.ask(backend.Take, g)
			p.must(d.Used == g.Cost, "the sub-key %q counts %d units, want %d", sub, d.Used, g.Cost)
		}
	}
	for i, key := range all {
		p.used(key, list, int64(i+1))
	}
	p.reset("a", list)
	p.used("A", list, 2)
	for name := range p.stored() {
		tag := tagged.FindString(name)
		for _, key := range []string{name, tag, strings.Trim(tag, "{}")} {
			if key != "" && len(key) <= backend.MaxKey && !slices.Contains(all, key) {
				all = append(all, key)
				p.used(key, list, 0)
			}
		}
	}
}

// expires looks after takes, and again after what could remove an expiry: a
// write that passes through another command, or a reset of a part. Between them
// it takes from a short window of a key that holds a long one. If the key expires
// with the short window, the long quota is granted again. The other keys are
// reset first, so that what is held longest is this key's.
func expires(p *probe) {
	p.needs(p.Expiries != nil, "Expiries")
	hour, day := p.list(algo.PerHour(10*p.k)), p.list(p.day(10), "-day")
	for i, list := range [][]backend.Policy{hour, day, join(hour, day)} {
		p.fill(fmt.Sprint("key ", i), list)
		lasting(p)
	}
	p.reset("key 1", day)
	p.reset("key 2", day)
	p.passes("long", day, 9)
	var last, held time.Duration
	for _, s := range p.states("long", day) {
		last = max(last, s.ResetAfter)
	}
	p.passes("long", hour, 1)
	for _, left := range p.stored() {
		held = max(held, left)
	}
	p.must(held >= last-p.slack(), "the key counts for %v, nothing is held longer than %v", last, held)
	p.denied("key 0", hour, 1)
	p.peek("key 0", hour, 1)
	p.reset("key 0", hour)
	lasting(p)
}

// lasting requires that nothing stays forever. Ten days are a margin: a store
// may hold a count for some periods, but not for a fixed month.
func lasting(p *probe) {
	stored := p.stored()
	p.must(len(stored) > 0, "nothing is stored after a take that passed")
	for name, left := range stored {
		p.must(left >= 0, "%.160q never expires", name)
		p.must(left < 10*24*time.Hour, "%.160q expires after %v, and all in it counts for two days at most", name, left)
	}
}

func records(p *probe) {
	list := p.list(p.day(100))
	p.passes("a", list, 90)
	d := p.ask(backend.Record, group("a", list, 150))
	p.must(d.Allowed && d.RetryAfter == 0 && d.Used == 240 && d.Remaining == 0, "a Record of 150 on 90 said %+v", d)
	p.used("a", list, 240)
	longest := time.Duration(0)
	for _, left := range p.stored() {
		longest = max(longest, left)
	}
	p.must(p.Expiries == nil || longest >= d.ResetAfter, "what counts for %v is held for %v", d.ResetAfter, longest)
	p.denied("a", list, 1)
	p.ask(backend.Record, group("new", list, 3))
	p.passes("as taken", list, 3)
	p.alike("new", "as taken", list)
	for i := range list {
		one := list[i : i+1]
		most := one[0].Algorithm.Kind().MaxLimit()
		for range 3 {
			p.ask(backend.Record, group("saturated", one, most))
		}
		p.used("saturated", one, 2*most)
	}
}

// upTo takes as many of so many calls of one unit as fit.
func (p *probe) upTo(key string, list []backend.Policy, calls int64) backend.Decision {
	p.t.Helper()
	g := group(key, list, 1)
	g.Run, g.UpTo = calls, true
	return p.ask(backend.Take, g)
}

func passesUpTo(p *probe) {
	list := p.list(p.day(10))
	for _, c := range []struct{ calls, passed, used int64 }{{4, 4, 4}, {5, 5, 9}, {7, 1, 10}} {
		d := p.upTo("a", list, c.calls)
		p.must(d.Allowed && d.Passed == c.passed && d.RetryAfter == 0, "of a run of %d calls passed %+v", c.calls, d)
		p.used("a", list, c.used)
	}
	unchanged := p.still("a", list)
	d := p.upTo("a", list, 7)
	p.must(!d.Allowed && d.Passed == 0 && d.RetryAfter > 0 && d.NextAfter == 0, "a run without room said %+v", d)
	unchanged()
	d = p.upTo("b", list, algo.MaxCount)
	p.must(d.Allowed && d.Passed == 10, "a run of more calls than the limit said %+v", d)
	for i := range p.shape.kinds {
		narrow := p.carried(join([]backend.Policy{p.policy("narrow", i, p.day(3))}, list)...)
		d = p.upTo("narrow", narrow, 7)
		p.must(d.Passed == 3 || i > 0, "of a run of two policies passed %d", d.Passed)
		p.reset("narrow", narrow)
	}
	g := group("c", list, 3)
	g.Run, g.UpTo = 7, true
	d = p.ask(backend.Take, g)
	p.must(d.Passed == 3, "of calls of 3 units passed %+v", d)
	p.used("c", list, 9)
}

func nextAfter(p *probe) {
	list := p.list(p.day(10))
	d := p.upTo("a", list, 10)
	p.must(d.Allowed && d.NextAfter == 0, "a run that passed whole said %+v", d)
	d = p.upTo("b", list, 11)
	next := p.denied("b", list, 1)
	p.must(d.Allowed && d.NextAfter > 0 && (p.SetNow == nil || d.NextAfter == next.RetryAfter || p.Cached),
		"a run that passed in part said %+v, and the next call is denied with %+v", d, next)
}
