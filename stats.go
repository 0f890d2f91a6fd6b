package headgate

import (
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/borrow"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/shard"
)

// Stats counts the decisions that the store did not make: those of the failure
// modes and of the deny cache.
type Stats struct {
	breaker.Stats
	DenyCache int64
	// MostDenied are the ten keys whose calls the deny cache of the store has denied most.
	// Calls by any limiter of this process count. The cache has a key for at most a
	// minute after its last denial. To find these keys costs a look at the whole cache.
	MostDenied []DeniedKey
	Spread     shard.Stats  // of keys that are spread: how often their sub-keys were summed, and lost races
	Memory     memory.Stats // of a store in memory: how full it is
	Borrow     borrow.Stats // of policies that borrow: units held in advance, and requests for them
}

// mostDenied is how many keys Stats lists.
const mostDenied = 10

// DeniedKey is a key of Stats.MostDenied.
type DeniedKey struct {
	Key     string
	Denials int64 // calls that were answered from memory, since the key was denied first
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
		for _, k := range l.denial.Most(mostDenied) {
			s.MostDenied = append(s.MostDenied, DeniedKey(k))
		}
	}
	return s
}
