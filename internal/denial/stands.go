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
	known := s.cache.At(r.Key).stands(g, &r.Group, now)
	if known == nil {
		return false
	}
	s.answered.Add(1)
	known.Answer(&r.Group, g, d, now)
	return true
}

// stands returns a denial of least that stands at now; nil where none does. A failure
// mode may grant all that most asks for.
func (s Set) stands(least, most *backend.Group, now time.Duration) *Denial {
	for i := range s.ways {
		e := s.may(i)
		if e == nil || !e.noted.Load() || len(least.Each) > len(e.States) || !e.denies(least) {
			continue
		}
		if d := e.stands(least, most, now); d != nil {
			return d
		}
	}
	return nil
}

// stands returns the denial as it stands at now, nil if it has ended. Of a TokenBucket it
// is known what comes free afterwards. Each call that no store decides takes the most that
// it may be granted of that, once so much is free. So the failure mode lets no more pass
// than comes free.
func (e *entry) stands(least, most *backend.Group, now time.Duration) *Denial {
	refill := e.refill(most)
	//mutant:at-most-waits
	more := refill - e.refill(least)
	//mutant:stands-one-minute
	for now < e.Sent+Standing {
		taken := e.taken.Load()
		//mutant:stands-until-retry
		if d := e.Denial; now < d.Ends+time.Duration(taken+more) {
			d.Told += time.Duration(taken + more)
			return &d
		}
		//mutant:refill-taken-once
		if refill == 0 || e.taken.CompareAndSwap(taken, taken+refill) {
			return nil
		}
	}
	return nil
}
