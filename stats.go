package headgate

import (
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/borrow"
	"github.com/headgate-go/headgate/shard"
)

// Stats counts the decisions that the store did not make: those of the failure
// modes and of the deny cache.
type Stats struct {
	breaker.Stats
	DenyCache int64
	// MostDenied are the ten keys with the most denied calls, by any limiter of this process on the
	// store. Calls that a failure mode decided are not in it, nor those of Wait. The counts are those
	// of the last five to ten minutes if Stats is called so often, else those since the call before.
	// At most 1,024 keys have a count in each five minutes. A key gets one at its first denial, or
	// some denials later if there are more keys than that.
	MostDenied []DeniedKey
	Spread     shard.Stats  // of keys that are spread: how often their sub-keys were summed, and lost races
	Memory     memory.Stats // of a store in memory: how full it is
	Borrow     borrow.Stats // of limiters with Borrow: units on loan, and requests for them
}

// mostDenied is how many keys Stats lists.
const mostDenied = 10

// DeniedKey is a key of Stats.MostDenied.
type DeniedKey struct {
	Key     string // its first KiB, if it is longer
	Denials int64
	Excess  int64 // how much Denials may be too high: what another key had whose place this one has taken
}

// Stats returns how many decisions the store did not make. It counts them by what made them,
// for this limiter and those that With and OnFailure made of it.
func (l *Limiter) Stats() Stats {
	if l.zero() {
		return Stats{}
	}
	s := Stats{Stats: l.breaker.Stats(), Spread: l.shard.Stats()}
	if m, ok := l.store.(*memory.Store); ok {
		s.Memory = m.Stats()
	}
	if l.denial != nil {
		s.DenyCache, s.Borrow = l.denial.Answered(), l.borrow.Stats()
	}
	for _, k := range l.adapter.Keys.Denied.Top(mostDenied, time.Now()) {
		s.MostDenied = append(s.MostDenied, DeniedKey{k.Key, k.Count, k.Excess})
	}
	return s
}
