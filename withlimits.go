package headgate

import (
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
)

// PolicyLimit is the limit of one policy that comes with a call. The zero PolicyLimit keeps
// the policy's own.
type PolicyLimit struct {
	algo.Limit       // a Period of 0 is the policy's own
	Burst      int64 // of a bucket; 0 is the Limit's Events
}

// WithLimits returns the limiter of the same policies with other limits, one for each policy
// in their order. It is for a limit that comes with the call, of a route, a model or a tenant's
// token:
//
//	l, err := limiter.WithLimits(headgate.PolicyLimit{Limit: algo.PerMinute(tenant.PerMinute)})
//
// The counts are those of l if the periods are. WithLimits keeps the limiters that it has made,
// 1,024 at most, and returns the same one for the same limits. That costs tens of nanoseconds and
// allocates nothing. Limits that it does not keep cost what With does. So limits that clients
// choose fill no memory.
func (l *Limiter) WithLimits(limits ...PolicyLimit) (*Limiter, error) {
	if l.zero() {
		return nil, errZero
	}
	if len(limits) != len(l.policies) {
		return nil, &InvalidError{What: "limits", Value: len(limits), Want: "one for each policy"}
	}
	set := l.adapter.Value(limitedKey{}, func() any { return new(limitedTable) }).(*limitedTable).at(limits)
	for i := range set {
		//mutant:kept-limits-compared
		if k := set[i].Load(); k != nil && slices.Equal(k.limits, limits) {
			return k.limiter, nil
		}
	}
	return l.withLimits(set, limits)
}

// withLimits makes the limiter, and keeps it in its set.
func (l *Limiter) withLimits(set []atomic.Pointer[limited], limits []PolicyLimit) (*Limiter, error) {
	policies := slices.Clone(l.policies)
	for i, n := range limits {
		if n == (PolicyLimit{}) {
			continue
		}
		a := &policies[i].Algorithm
		if n.Period == 0 {
			n.Period = a.Limit().Period
		}
		var err error
		if *a, err = a.WithLimit(n.Limit, n.Burst); err != nil {
			return nil, err
		}
	}
	other, err := l.With(policies...)
	if err != nil {
		return nil, err
	}
	for i := len(set) - 1; i > 0; i-- { // the one that was made first leaves
		set[i].Store(set[i-1].Load())
	}
	set[0].Store(&limited{slices.Clone(limits), other})
	return other, nil
}

// limited is a limiter that WithLimits has made.
type limited struct {
	limits  []PolicyLimit
	limiter *Limiter
}

// limitedTable is a bounded table of them, a value of the limiter. A set has those of one
// remainder of the hash. All calls share it without a lock: a race makes a limiter twice, or
// loses one.
type limitedTable [256][4]atomic.Pointer[limited]

type limitedKey struct{}

// at returns the set of the limits.
func (t *limitedTable) at(limits []PolicyLimit) []atomic.Pointer[limited] {
	h := uint64(len(limits))
	for i := range limits {
		n := &limits[i]
		h = (h ^ uint64(n.Events)) * 0x9E3779B97F4A7C15
		h = (h ^ h>>32 ^ uint64(n.Period)) * 0x9E3779B97F4A7C15
		h = (h ^ h>>32 ^ uint64(n.Burst)) * 0x9E3779B97F4A7C15
	}
	return t[h>>56][:]
}
