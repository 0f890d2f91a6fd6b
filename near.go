package headgate

import (
	"math"

	"github.com/headgate-go/headgate/backend"
)

// defaultNear is the share of a limit that Event.Near is about by default.
const defaultNear = 0.8

// nearOf returns the states of the policies whose count the call has raised to the share
// of the limit, by what the store answered alone: no key has a record. So of all calls in
// all processes one has it.
func (l *Limiter) nearOf(q *question) (near []State) {
	d := &q.decision
	if l.near <= 0 || !d.Allowed || d.Estimated || !charges(q.request.Op) { // mutant: near-of-counted
		return nil
	}
	for i := range l.policies {
		s, cost := &d.State, q.request.CostOf(i)
		if q.request.Each != nil {
			s = &q.request.Each[i]
		} else if len(l.policies) > 1 {
			return nil
		}
		if q.request.Op == backend.AtMost {
			cost = d.Granted
		}
		used := s.Used - q.behind*cost // mutant: near-of-each-waiter
		share := int64(math.Ceil(l.near * float64(s.Limit)))
		if s.Counted && !l.policies[i].Shadow && used-cost < share && share <= used {
			near = append(near, *s)
		}
	}
	return near
}

func charges(op backend.Op) bool {
	return op == backend.Take || op == backend.AtMost || op == backend.Reserve || op == backend.Record
}
