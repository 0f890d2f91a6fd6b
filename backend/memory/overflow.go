package memory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// overflow holds one record a policy for all keys that came while the store
// was full. Its lock is taken after a stripe's, never before.
type overflow struct {
	live atomic.Bool // a record exists
	mu   struct {
		sync.Mutex
		latest  int64 // the last decision's instant, by the store's own clock
		records map[shared]*record
	}
}

// record holds an algorithm's words. It leaves once it is as new.
type record struct {
	words   []int64
	resetAt int64
}

// instant is the instant of a decision that the overflow takes part in, with
// both locks held: not before that of an earlier one. See Store.instant.
func (o *overflow) instant(s *Store, m *guarded, now int64) int64 {
	if s.clock.falls {
		return now
	}
	o.mu.latest = max(o.mu.latest, now)
	m.latest = o.mu.latest
	return m.latest
}

// shared names an overflow record. Limiters that list a policy with another
// period count apart here: one count can't be right for both.
type shared struct {
	policy string
	kind   algo.Kind
	period time.Duration
}

func (o *overflow) id(g *backend.Group, i int) shared {
	p := &g.Policies[i]
	return shared{p.Name, p.Algorithm.Kind(), p.Algorithm.Limit().Period}
}

// find returns the policy's overflow record, nil where there is none or it is
// as new. Called with the lock held.
func (o *overflow) find(g *backend.Group, i int, now int64) *record {
	r := o.mu.records[o.id(g, i)]
	if r == nil || r.resetAt > now {
		return r
	}
	delete(o.mu.records, o.id(g, i))
	o.live.Store(len(o.mu.records) > 0)
	return nil
}

// record makes the policy's overflow record. Called with the lock held: the
// store was full when the group was looked at.
func (o *overflow) record(g *backend.Group, i int) *record {
	if o.mu.records == nil {
		o.mu.records = map[shared]*record{}
	}
	r := &record{words: make([]int64, max(len(none), g.Policies[i].Algorithm.Words()))}
	o.mu.records[o.id(g, i)] = r
	o.live.Store(true)
	return r
}
