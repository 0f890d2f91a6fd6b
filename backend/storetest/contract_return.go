package storetest

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// returned stands behind the case Record.
var returned = []sentence{
	{"Return", returns, "A Return passes, and takes its costs out of what each policy counts, the newest units first and never below zero: " +
		"Used is less by as much. Lent units are not among them."},
}

func returns(p *probe) {
	p.needsOp(backend.Return)
	list := slices.DeleteFunc(p.list(p.day(20)), func(q backend.Policy) bool { return !q.Algorithm.Kind().Returns() })
	p.passes("a", list, 9)
	p.passes("a", list, 4)
	p.reserved("a", list, 2)
	for _, c := range []struct{ back, left int64 }{{1, 14}, {7, 7}, {20, 0}, {3, 0}} {
		d := p.ask(backend.Return, group("a", list, c.back))
		p.must(d.Allowed && d.RetryAfter == 0 && d.Used == c.left, "a Return of %d units that leaves %d said %+v", c.back, c.left, d)
		p.used("a", list, c.left)
	}
	p.passes("a", list, 20)
	p.ask(backend.Return, group("a", list, 5))
	p.denied("a", list, 6)
	p.passes("a", list, 5)
	p.ask(backend.Record, group("a", list, 5))
	p.ask(backend.Return, group("a", list, 2))
	p.used("a", list, 23)
	p.untouched(list)
	p.newestFirst(list)
}

// untouched returns units of a key that has none.
func (p *probe) untouched(list []backend.Policy) {
	before := p.stored()
	p.ask(backend.Return, group("none", list, 5))
	p.must(len(p.stored()) == len(before), "a Return of a key without counts stores something")
	p.asNew("none", list)
}

// newestFirst returns units that are younger than others, which then leave by themselves.
func (p *probe) newestFirst(list []backend.Policy) {
	if p.SetNow == nil {
		return
	}
	for i := range list {
		one := list[i : i+1]
		p.passes("old", one, 6)
		p.passes("as old", one, 6)
		p.advance(2 * sec)
		p.passes("old", one, 3)
		p.ask(backend.Return, group("old", one, 4))
		p.ask(backend.Return, group("as old", one, 1))
		p.alike("old", "as old", one)
	}
}
