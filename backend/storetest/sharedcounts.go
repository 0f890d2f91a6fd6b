package storetest

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// SharedCounts has limiters that list one policy together with others. One of
// them starts in mid-window, as in a rolling deploy. The policy's limit must
// hold over all of them. It needs no hook.
func SharedCounts(t *testing.T, h Harness) {
	const rule = "two limiters that list a policy for the same key share its count, whatever else they list"
	h.each(t, rule, shares)
}

// shares alternates the lists call by call. A store that keeps one value per
// list, or that writes a key anew when the list grows, grants the quota twice.
func shares(p *probe) {
	const limit = 50
	quota := p.carried(p.policy("quota", 0, algo.PerDay(limit)))
	search := p.carried(p.policy("search", 1, algo.PerDay(20)))
	added := p.carried(p.policy("added", 2, algo.PerDay(15)))
	lists := [][]backend.Policy{quota, p.carried(join(quota, search)...)}
	var passed, searched, more int64
	for i := range 3 * limit {
		if i == limit/2 {
			before := p.states("a", lists[1])
			lists = append(lists, p.carried(join(added, quota, search)...))
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
	p.used("a", search, searched)
	p.used("a", added, more)
}
