package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Spread checks a store that spreads each key over k sub-keys, 2 or more, as
// Group.Shards asks. Stores ignore Shards, so only a wrapper that spreads, such
// as package shard, needs it. It runs the cases of Contract that hold of a
// spread key, with limits k times as large, and some of its own. Left out is what
// spreading gives up. Remaining and RetryAfter are estimates unless the whole key was
// read. A call that loses a race may be denied while there is room. A cost above the
// smallest share is refused. After a refused request the take may pass on another
// sub-key. The hooks are those of Contract.
func Spread(t *testing.T, h Harness, k int) {
	h.shards = k
	h.cases(t, spreads)
}

// kept are cases of the contract that hold of spread keys word by word.
var kept = []string{"Peek", "Reset", "Name", "Counted", "Keys", "Context", "Expires", "Close", "Kept"}

var spreads = append(slices.DeleteFunc(slices.Clone(contract), func(c sentence) bool {
	return !slices.Contains(kept, c.name)
}),
	sentence{"WholeLimit", wholeLimit, "All of the limit passes through the sub-keys, and no more."},
	sentence{"RetryAfter", retryAfter, "RetryAfter is the earliest of the sub-keys', exact after a peek."},
	sentence{"ResetAfter", resetAfter, "ResetAfter is the latest of the sub-keys', exact after a peek."},
	sentence{"UpTo", spreadUpTo, "A run that is UpTo takes what there is in all of the sub-keys."},
	sentence{"Exact", spreadExact, "What a decision marks as Exact is exact."},
	sentence{"Share", refuses,
		"A cost above the smallest share is ErrNeverAdmissible, which names both, and no count changes."},
	sentence{"Lost", atMostOnce, "A take is charged at most once, whatever is lost on the way."},
	sentence{"Storm", spreadStorm, "No trailing window ever holds more than the algorithm's worst."},
	sentence{"Crowd", oneKey,
		"Store keeps counts and decides on them atomically. Its methods are safe for concurrent use."},
)

// wholeLimit takes unit by unit all that there is, of limits that k divides
// and that it does not. The remainder belongs to some sub-keys only.
func wholeLimit(p *probe) {
	for i, limit := range []int64{p.k, 10 * p.k, 10*p.k + 1, 7*p.k - 1} {
		list, key := p.list(algo.PerDay(limit)), fmt.Sprint(i)
		for n := range limit {
			d := p.passes(key, list, 1)
			p.must(d.Limit == limit && d.Remaining < limit-n+p.k, "the %d-th of %d: %+v", n+1, limit, d)
		}
		p.used(key, list, limit)
		still := p.still(key, list)
		for range 5 {
			d := p.denied(key, list, 1)
			p.must(d.Remaining == 0 && d.Used == limit && d.RetryAfter > 0, "a spent key says %+v", d.State)
		}
		still()
	}
}

// spreadUpTo asks for less than a sub-key has, for more, and for more than there is.
func spreadUpTo(p *probe) {
	limit := 6*p.k + 1
	list, left := p.list(algo.PerDay(limit)), limit
	for _, n := range []int64{1, 2*p.k + 3, limit} {
		want := min(n, left)
		d := p.upTo("a", list, n)
		p.must(d.Allowed && d.Passed == want && d.RetryAfter == 0, "of %d calls that %d have room for passed %+v", n, left, d)
		left -= want
		p.used("a", list, limit-left)
	}
	unchanged := p.still("a", list)
	d := p.upTo("a", list, 5)
	p.must(!d.Allowed && d.Passed == 0 && d.RetryAfter > 0, "a run without room said %+v", d)
	unchanged()
}

// spreadExact compares what a take says with a peek, which reads all sub-keys. A
// store may estimate, but has to mark it: callers show exact numbers only.
func spreadExact(p *probe) {
	limit := 6*p.k + 1
	list := p.list(algo.PerDay(limit))
	each := make([]backend.State, len(list))
	for range 2 * limit {
		p.pause()
		n := 1 + p.dice.Int64N(2)
		d := p.ask(backend.Take, backend.Group{Key: "a", Policies: list, Cost: n, Each: each})
		if d.Known != backend.Exact {
			continue
		}
		said, cost := slices.Clone(each), int64(0)
		if !d.Allowed {
			cost = n
		}
		p.ask(backend.Peek, backend.Group{Key: "a", Policies: list, Cost: cost, Each: each})
		p.must(slices.EqualFunc(said, each, p.same), "a take of %d said\n\t%+v\nand a peek\n\t%+v", n, said, each)
	}
}

// spreadStorm has an odd limit, so that the shares differ.
func spreadStorm(p *probe) {
	p.needsClock()
	l := algo.Per(17*p.k/2+1, 7*sec+13*tick)
	p.storm("a", p.list(l), l)
}
