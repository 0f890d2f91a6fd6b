package denial

import (
	"math/bits"
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
	//mutant:higher-cost-later
	if g.CostOf(i) > d.Costs[i] && s.Lent == 0 {
		s.RetryAfter = max(s.RetryAfter, passesAfter(&g.Policies[i].Algorithm, s, g.CostOf(i)))
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
