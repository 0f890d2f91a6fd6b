package headgate

import (
	"slices"
	"time"
)

// One take is for several waiters of a queue, and waits until there is room for all of
// them: as many as come free within maxRound, and at most half of what the policies can
// grant, so that nothing overflows meanwhile.
const (
	maxRound   = 100 * time.Millisecond
	shareOfMax = 2 // a take is at most this part of what a policy can grant
)

// round returns how many calls as the waiter's one take may be for, and in which time
// so much comes free.
func (w *waiter) round() (calls int64, d time.Duration) {
	if w.reserves {
		return 1, maxRound
	}
	calls = 1 << 30
	for i := range w.limiter.policies {
		p := &w.limiter.policies[i]
		if p.Shadow {
			continue
		}
		if cost := w.cost(i); cost > 0 {
			calls = min(calls, p.Algorithm.Max()/int64(max(p.Shards, 1))/shareOfMax/cost, int64(maxRound/w.each(i)))
		}
		d = max(d, w.each(i))
	}
	calls = max(calls, 1)
	return calls, d * time.Duration(calls)
}

// most returns the maximum number of calls for one take that begins with this waiter's.
// The room that is remembered may be of calls that cost less, of a limiter with a higher
// limit, or of all sub-keys. A shadow is charged by the call, so a list with shadows makes
// a take per call.
func (w *waiter) most() int64 {
	if slices.ContainsFunc(w.limiter.policies, shadow) { // mutant: shadow-of-each-waiter
		return 1
	}
	most := int64(1 << 30)
	for i := range w.limiter.policies {
		p := &w.limiter.policies[i]
		if cost := w.cost(i); cost > 0 {
			most = min(most, p.Algorithm.Max()/int64(max(p.Shards, 1))/cost) // mutant: wait-take-fits
		}
	}
	return max(most, 1)
}

// each returns in which time the i-th policy's units for one call come free.
func (w *waiter) each(i int) time.Duration {
	l := w.limiter.policies[i].Algorithm.Limit()
	each := float64(w.cost(i)) * float64(l.Period) / float64(max(l.Events, 1))
	return max(1, time.Duration(min(each, float64(maxWait))))
}

// maxWait is the longest time that a head sleeps.
const maxWait = 400 * 24 * time.Hour
