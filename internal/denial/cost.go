package denial

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// stateAt sets s to State. If g costs more than what was denied, the RetryAfter is that of
// g's cost, as far as the state determines it. It is at most a microsecond longer than the
// store's. Units that are lent may come back sooner, so they are left out.
func (d *Denial) stateAt(i int, g *backend.Group, now time.Duration, s *backend.State) {
	*s = d.States[i]
	d.age(i, g, now, s)
	j := i
	if len(d.States) < len(g.Policies) { // only the binding one
		j = slices.IndexFunc(g.Policies, func(p backend.Policy) bool { return p.Name == s.Policy })
	}
	//mutant:higher-cost-later
	if j >= 0 && g.CostOf(j) > d.Costs[j] && s.Lent == 0 {
		s.RetryAfter = max(s.RetryAfter, passesAfter(&g.Policies[j].Algorithm, s, g.CostOf(j)))
	}
}

// passesAfter returns the time until n units pass, by a policy's state; 0 if the state
// does not determine it. A TokenBucket is empty after ResetAfter. n units pass earlier, by
// the time in which the rest of the burst leaks.
func passesAfter(a *algo.Algorithm, s *backend.State, n int64) time.Duration {
	if n <= s.Remaining || a.Kind() != algo.KindTokenBucket {
		return 0
	}
	l := a.Limit()
	high, low := bits.Mul64(uint64(max(0, a.Max()-n)), uint64(l.Period/time.Microsecond))
	if high >= uint64(l.Events) {
		return 0 // longer than any ResetAfter
	}
	rest, _ := bits.Div64(high, low, uint64(l.Events))
	if rest >= uint64(s.ResetAfter/time.Microsecond) {
		return 0
	}
	return s.ResetAfter - time.Duration(rest)*time.Microsecond
}

// refill returns in how many nanoseconds g's cost comes free again, 0 if that is not known.
func (e *entry) refill(g *backend.Group) int64 {
	i := bits.TrailingZeros64(e.Bound)
	a := &e.group.Policies[i].Algorithm
	if e.Bound != 1<<i || a.Kind() != algo.KindTokenBucket {
		return 0
	}
	return int64(math.Ceil(float64(g.CostOf(i)) * float64(a.Limit().Period) / float64(a.Limit().Events)))
}
