package headgate

import (
	"math"

	"github.com/headgate-go/headgate/backend"
)

// defaultNear is the share of a limit that Event.Near is about by default.
const defaultNear = 0.8

// nearOf appends the states of the policies whose count a call has raised to the share of
// the limit, by what the store answered alone: no key has a record. So of all calls in all
// processes one has it. d is the call's decision.
func (l *Limiter) nearOf(near []Near, q *question, d *Decision) []Near {
	r := &q.request
	if l.near <= 0 || !d.Allowed || d.Estimated || !charges(r.Op) { // mutant: near-of-counted
		return near
	}
	for i := range l.policies {
		s, cost := &d.State, r.CostOf(i)
		if r.Each != nil {
			s = &r.Each[i]
		} else if len(l.policies) > 1 || r.Op == backend.Settle {
			return near
		}
		switch r.Op {
		case backend.AtMost:
			cost = d.Granted
		case backend.Settle:
			cost = max(0, r.Lease.ActualOf(l.policies, i)-cost)
		}
		used := s.Used - q.behind*cost // mutant: near-of-each-waiter
		share := int64(math.Ceil(l.near * float64(s.Limit)))
		if s.Counted && !l.policies[i].Shadow && used-cost < share && share <= used {
			near = append(near, Near{Key: r.Key, State: *s})
		}
	}
	return near
}

// near returns those of all keys of a call whose limiters have an observer. d is the call's
// decision.
func (ks keys) near(d *Decision) (near []Near) {
	for i := range ks {
		if k := &ks[i]; k.limiter != nil && k.limiter.observer != nil && k.request.Each != nil {
			near = k.limiter.nearOf(near, &k.question, d)
		}
	}
	return near
}

// watch wants the states that the event of the call needs: of each key, since another one
// may bind.
func (k *keyed) watch() {
	l := k.limiter
	if l.observer == nil {
		return
	}
	if k.observe(l); l.near > 0 && k.request.Each == nil { // mutant: near-of-all-keys
		k.request.Each = make([]State, len(l.policies))
	}
}

// charges reports whether an operation may raise a count. A settlement does by what was
// used above the estimate.
func charges(op backend.Op) bool {
	return op == backend.Take || op == backend.AtMost || op == backend.Reserve || op == backend.Record || op == backend.Settle
}
