package denial

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Standing is the maximum duration for which a denial stands where no store decides.
const Standing = time.Minute

// Stands answers a call that no store decided, if the store has denied it at most a
// minute ago. The denial must end at an instant still to come. It reports whether it did.
func (s *Store) Stands(r *backend.Request, d *backend.Decision) bool {
	if s == nil || s.ttl == 0 { // nothing is remembered
		return false
	}
	g, now := leastOf(r), s.cache.Now()
	known := s.cache.At(r.Key).stands(g, now)
	if known == nil {
		return false
	}
	s.answered.Add(1)
	known.Answer(&r.Group, g, d, now)
	return true
}

// stands returns a denial of g that stands at now; nil where none does.
func (s Set) stands(g *backend.Group, now time.Duration) *Denial {
	generation := s.Generation()
	for i := range s.ways {
		e := s.may(i)
		//mutant:reset-ends-what-stands
		if e == nil || e.generation != generation || len(g.Each) > len(e.States) || !e.denies(g) {
			continue
		}
		if d := e.stands(g, now); d != nil {
			return d
		}
	}
	return nil
}

// stands returns the denial as it stands at now, nil if it has ended. Of a TokenBucket it
// is known what comes free afterwards. Each call that no store decides takes its cost of
// that, so the failure mode lets no more pass than comes free.
func (e *entry) stands(g *backend.Group, now time.Duration) *Denial {
	//mutant:stands-one-minute
	for now < e.Sent+Standing {
		taken := e.taken.Load()
		//mutant:stands-until-retry
		if d := e.Denial; now < d.Ends+time.Duration(taken) {
			d.Told += time.Duration(taken)
			return &d
		}
		refill := e.refill(g)
		//mutant:refill-taken-once
		if refill == 0 || e.taken.CompareAndSwap(taken, taken+refill) {
			return nil
		}
	}
	return nil
}
