package headgate

import (
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/shard"
)

// Stats counts the decisions that the store did not make: those of the failure
// modes and of the deny cache.
type Stats struct {
	breaker.Stats
	DenyCache int64
	Spread    shard.Stats // of keys that are spread: how often their sub-keys were summed, and lost races
}

// Stats returns how many decisions the store did not make, by what made them,
// for this limiter and those that With and OnFailure made of it.
func (l *Limiter) Stats() Stats {
	if l.zero() {
		return Stats{}
	}
	s := Stats{Stats: l.breaker.Stats(), Spread: l.shard.Stats()}
	if l.denial != nil {
		s.DenyCache = l.denial.Answered()
	}
	return s
}
