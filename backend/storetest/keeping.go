package storetest

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

func resets(p *probe) {
	list, other := p.list(algo.PerDay(10)), p.carried(policy("other", p.shape.kind(1)(algo.PerDay(20))))
	for _, key := range []string{"a", "b"} {
		p.passes(key, join(list, other), 10)
	}
	b, kept := p.states("b", join(list, other)), p.states("a", other)
	p.reset("a", list)
	p.unchanged("b", join(list, other), b)
	p.unchanged("a", other, kept)
	asNew(p, "a", list)
	p.passes("a", join(list, other), 10)
	p.denied("a", list, 1)
	p.reset("nobody", list)
	asNew(p, "nobody", list)
	resetsOne(p, list)
}

// resetsOne resets the policies one by one.
func resetsOne(p *probe, list []backend.Policy) {
	p.passes("one", list, 5)
	for i := range list {
		p.reset("one", list[i:i+1])
		for j, s := range p.states("one", list) {
			p.must((s.Used == 0) == (j <= i), "after the first %d were reset %s says %+v", i+1, s.Policy, s)
		}
	}
}

// asNew requires that the key is as if it had never been.
func asNew(p *probe, key string, list []backend.Policy) {
	p.t.Helper()
	for _, s := range p.states(key, list) {
		p.must(s.Used == 0 && s.Remaining == s.Limit && s.RetryAfter == 0 && s.ResetAfter == 0, "not as new: %+v", s)
	}
}

func names(p *probe) {
	quota := p.list(algo.PerDay(50))
	search := p.carried(policy("search", p.shape.kind(1)(algo.PerDay(40))))
	for i, list := range [][]backend.Policy{quota, join(quota, search), join(search, quota), quota[:1], join(search, quota[:1])} {
		before := p.states("a", quota)[0].Used
		p.passes("a", list, int64(i+1))
		p.must(p.states("a", quota)[0].Used == before+int64(i+1), "%s did not count list %d", quota[0].Name, i)
	}
	p.used("a", search, 2+3+5)
	p.used("a", quota[:1], 1+2+3+4+5)
	likeNames(p)
}

// likeNames uses names that a careless store could take for one another.
func likeNames(p *probe) {
	var list []backend.Policy
	alike := []string{"a", "A", "aa", "a-", "a_", "-a", "_", "-", "0", "a0", strings.Repeat("a", 63), strings.Repeat("a", 64)}
	for i, name := range alike {
		list = append(list, policy(name, p.shape.kind(i)(algo.PerDay(100))))
	}
	p.carried(list...)
	for i := range list {
		p.passes("names", list[i:i+1], int64(i+1))
	}
	for i, s := range p.states("names", list) {
		p.must(s.Used == int64(i+1), "%q counts %d units, want %d", s.Policy, s.Used, i+1)
	}
}

func limits(p *probe) {
	ten, five, twenty := p.list(algo.PerDay(10)), p.list(algo.PerDay(5)), p.list(algo.PerDay(20))
	p.passes("a", ten, 6)
	p.used("a", five, 6)
	p.denied("a", five, 1)
	p.must(p.peek("a", five, 5).Remaining == 0, "6 of 5 used leave some")
	p.used("a", twenty, 6)
	p.passes("a", twenty, 14)
	p.used("a", ten, 20)
	p.denied("a", ten, 1)
	p.denied("a", twenty, 1)
}

// trickyKeys are keys that a store could mistake for one another, or for
// something that it means itself.
func trickyKeys() []string {
	long := strings.Repeat("k", backend.MaxKey)
	list := []string{
		"a", "A", " a", "a ", "aa", "\x00", "a\x00", "a\x00b", "\x00a", "a\n", "a\r\n", "a\t",
		"{", "}", "{}", "{a}", "{a", "a}", "}{", "{{a}}", "{a}{b}", "{a}b", "a{b}", "{}a",
		"a:b", "a:", ":a", ":", "::", "a/b", "a#1", "a~1", "a|b", "a,b", "a.b", "a*", "a?", "[a]", "%61", `a\`, `"a"`, "'a'",
		"0", "00", "1", "-1", "1e0", "nil", "p0", "p1", "a:p0", "a:p1",
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

func keys(p *probe) {
	list := p.list(algo.PerDay(1000))
	all := trickyKeys()
	for i, key := range all {
		p.passes(key, list, int64(i+1))
	}
	subKeys(p, "a", list)
	for i, key := range all {
		p.used(key, list, int64(i+1))
	}
	p.reset("a", list)
	p.used("A", list, 2)
	for _, key := range storedNames(p) {
		if len(key) <= backend.MaxKey { // else nobody can ask for it
			p.used(key, list, 0)
		}
	}
}

// subKeys charges sub-keys of a key: those are no keys that anybody can name.
func subKeys(p *probe, key string, list []backend.Policy) {
	for i, sub := range []string{"1", "2", "10"} {
		d := p.ask(backend.Take, backend.Group{Key: key, Sub: sub, Policies: list, Cost: int64(i + 1)})
		p.must(d.Used == int64(i+1), "the sub-key %q of %q counts %d units, want %d", sub, key, d.Used, i+1)
	}
}

var tagged = regexp.MustCompile(`\{.*\}`)

// storedNames returns the names that the store itself made up, and the parts
// of them that pick a slot: nobody who asks for those may meet a count.
func storedNames(p *probe) []string {
	known := map[string]bool{"": true}
	for _, key := range trickyKeys() {
		known[key] = true
	}
	var fresh []string
	for name := range p.stored() {
		tag := tagged.FindString(name)
		for _, key := range []string{name, tag, strings.Trim(tag, "{}")} {
			if !known[key] {
				known[key] = true
				fresh = append(fresh, key)
			}
		}
	}
	return fresh
}

func expires(p *probe) {
	p.needs(p.Expiries != nil, "Expiries")
	hour, day := p.list(algo.PerHour(10)), p.list(algo.PerDay(10))
	for i := range day {
		day[i].Name += "-day"
	}
	for i, list := range [][]backend.Policy{hour, day, join(hour, day)} {
		p.passes(fmt.Sprint("key ", i), list, 3)
		lasting(p)
	}
	shortAfterLong(p, hour, day)
	p.denied("key 0", hour, 8)
	p.peek("key 0", hour, 1)
	p.reset("key 0", hour)
	lasting(p)
}

// lasting requires that nothing stays forever.
func lasting(p *probe) {
	p.t.Helper()
	stored := p.stored()
	p.must(len(stored) > 0, "nothing is stored after a take that passed")
	for name, left := range stored {
		p.must(left >= 0, "%.160q never expires", name)
		p.must(left < 10*24*time.Hour, "%.160q expires after %v, with nothing in it that counts for longer than two days", name, left)
	}
}

// shortAfterLong takes from a short window of a key that holds a long one:
// what expires with the short would hand out the long one's quota again.
func shortAfterLong(p *probe, hour, day []backend.Policy) {
	p.reset("key 1", day)
	p.reset("key 2", day)
	p.passes("long", day, 9)
	var last time.Duration
	for _, s := range p.states("long", day) {
		last = max(last, s.ResetAfter)
	}
	p.passes("long", hour, 1)
	var held time.Duration
	for _, left := range p.stored() {
		held = max(held, left)
	}
	p.must(held >= last-p.passed(), "the key counts for %v, nothing is held longer than %v", last, held)
}
