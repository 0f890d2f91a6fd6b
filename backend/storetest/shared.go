package storetest

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// SharedCounts has limiters that list a policy together with others, one of
// which comes in mid-window: the policy's limit holds over all of them.
func SharedCounts(t *testing.T, h Harness) {
	const rule = "two limiters that list a policy for the same key share its count, whatever else they list"
	h.each(t, rule, shares)
}

func shares(p *probe) {
	const limit = 50
	quota := p.carried(policy("quota", p.shape.kind(0)(algo.PerDay(limit))))
	search := policy("search", p.shape.kind(1)(algo.PerDay(20)))
	added := policy("added", p.shape.kind(2)(algo.PerDay(15)))
	lists := [][]backend.Policy{quota, p.carried(join(quota, []backend.Policy{search})...)}
	var passed, searched, more int64
	for i := range 3 * limit {
		if i == limit/2 { // a rolling deploy: the new list joins the old ones
			before := p.states("a", lists[1])
			lists = append(lists, p.carried(join([]backend.Policy{added}, quota, []backend.Policy{search})...))
			p.unchanged("a", lists[1], before)
		}
		list := lists[i%len(lists)]
		if p.take("a", list, 1).Allowed {
			passed++
			searched += int64(min(1, len(list)-1))
			more += int64(len(list) / 3)
		}
		p.used("a", quota, passed)
	}
	p.must(passed == limit, "of a quota of %d three lists passed %d", limit, passed)
	p.must(searched == 20 && more > 0, "of 20 searches %d passed, %d of them on the added list", searched, more)
	p.used("a", p.carried(search), searched)
	p.used("a", p.carried(added), more)
}
