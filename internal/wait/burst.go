package wait

import (
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// One take is for several waiters of a queue, and is made when there are units for all
// of them. It is for as many as become free within maxBurst, and at most half of what the
// policies can grant. So no unit is lost meanwhile.
const (
	maxBurst   = 100 * time.Millisecond
	shareOfMax = 2 // a burst is at most this part of what a policy can grant
)

// burst is a number of calls for one take, and the time in which their units become
// free.
type burst struct {
	calls  int64
	length time.Duration
}

// burst returns how many such calls one take is for.
func (c *Call) burst() burst {
	if c.Single {
		return burst{1, maxBurst}
	}
	b, longest := burst{calls: 1 << 30}, time.Duration(0)
	for i := range backend.Enforced(c.Policies) {
		if cost := c.cost(i); cost > 0 {
			b.calls = min(b.calls, c.grants(i)/shareOfMax/cost, int64(maxBurst/c.interval(i)))
		}
		longest = max(longest, c.interval(i))
	}
	b.calls = max(b.calls, 1)
	b.length = longest * time.Duration(b.calls)
	return b
}

// limit returns the maximum number of such calls for one take. A queue may remember more
// free units: of calls that cost less, of a limiter with a higher limit, or of all
// sub-keys.
func (c *Call) limit() int64 {
	limit := int64(1 << 30)
	for i := range backend.Enforced(c.Policies) {
		if cost := c.cost(i); cost > 0 {
			//mutant:wait-take-fits
			limit = min(limit, c.grants(i)/cost)
		}
	}
	return max(limit, 1)
}

// grants returns the largest cost that the i-th policy can grant, on each sub-key if the key
// is spread.
func (c *Call) grants(i int) int64 { return c.Policies[i].Algorithm.Max() / int64(max(c.Shards, 1)) }

// cost returns the call's cost for the i-th policy.
func (c *Call) cost(i int) int64 {
	if c.Costs == nil {
		return 1
	}
	return c.Costs[i]
}

// interval returns the time in which the i-th policy's units for one call become free.
func (c *Call) interval(i int) time.Duration {
	l := c.Policies[i].Algorithm.Limit()
	d := float64(c.cost(i)) * float64(l.Period) / float64(max(l.Events, 1))
	return max(1, time.Duration(min(d, float64(rule.MaxPeriod))))
}
