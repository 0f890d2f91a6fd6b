package shard

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// total sums what shares say of a key. It passes, or passes again, when the
// first of the shares lets it; it is as new when the last of them is. A share
// that says nothing has no room.
type total struct {
	plan  *plan
	sum   []backend.State // Used, Remaining and ResetAfter so far, one a policy
	retry time.Duration   // after which the first of them lets the call pass
	heard int             // shares
}

func newTotal(p *plan) *total { return &total{plan: p, sum: make([]backend.State, len(p.policies))} }

// add adds one share's states.
func (t *total) add(states []backend.State) {
	retry := time.Duration(0)
	for j := range states {
		s := &states[j]
		t.sum[j].Used += s.Used
		t.sum[j].Remaining += s.Remaining
		t.sum[j].ResetAfter = max(t.sum[j].ResetAfter, s.ResetAfter)
		retry = max(retry, s.RetryAfter)
	}
	if t.heard == 0 || retry < t.retry {
		t.retry = retry
		for j := range states {
			t.sum[j].RetryAfter = states[j].RetryAfter
		}
	}
	t.heard++
}

// states returns what the key's policies say. Used and Remaining may be more
// than the limit together, while counts live of another limit or another K: a
// share that holds more than its part takes nothing from the room of others.
func (t *total) states() []backend.State {
	for j := range t.sum {
		s, p := &t.sum[j], &t.plan.policies[j]
		s.Policy, s.Counted, s.Limit = p.Name, true, p.Algorithm.Max()
		if t.heard < len(t.plan.parts) {
			s.Used = s.Limit - s.Remaining
		}
	}
	return t.sum
}
