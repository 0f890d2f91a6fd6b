package denial

import (
	"math/bits"
	"slices"
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
	g, now, at := &r.Group, s.cache.Now(), s.cache.At(r.Key)
	known, left := at.stands(g, now, false)
	//mutant:looks-take-nothing
	if known == nil && r.Op.Charges() {
		known, left = at.stands(g, now, true)
	}
	if known == nil {
		return false
	}
	s.answered.Add(1)
	known.Answer(g, d, now)
	// A call that costs more than was denied may have longer to wait than the state says.
	d.RetryAfter = max(d.RetryAfter, left)
	for i := range r.Each {
		//mutant:each-state-with-its-wait
		if r.Each[i].Policy == d.Policy {
			r.Each[i].RetryAfter = d.RetryAfter
		}
	}
	return true
}

// stands returns a denial that stands at now, as one of g. It returns for how long the call has to wait; nil where none does. If no denial stands, the
// call takes all that it may be charged of what has come free since each of them.
func (s Set) stands(g *backend.Group, now time.Duration, takes bool) (*Denial, time.Duration) {
	for i := range s.ways {
		e := s.may(i)
		if e == nil || !s.holding(e) {
			continue
		}
		d := e.as(g)
		if d == nil {
			continue
		}
		by := bits.TrailingZeros64(d.Bound)
		if left := e.stands(d, g.Charged(by, g.Run), takes, now); left > 0 {
			return d, left
		}
	}
	return nil, 0
}

// as returns the denial as one of g, nil if g is not denied. What one policy has denied is
// denied to each list that has it: it is one count.
func (e *entry) as(g *backend.Group) *Denial {
	d := e.Denial
	if e.denies(g) {
		return &d
	}
	j := e.bound(g)
	//mutant:cheaper-call-of-a-count
	if j < 0 || g.CostOf(j) < e.Costs[e.binding()] {
		return nil
	}
	d.States, d.Costs, d.Bound = unknown(g.Policies), Costs(g), 1<<j
	d.States[j], d.Costs[j] = e.States[e.binding()], e.Costs[e.binding()]
	return &d
}

// stands returns for how long the denial still stands for a call that may be charged n
// units, 0 if it has ended. d becomes the denial at that instant.
//
// Of a TokenBucket it is known what comes free afterwards. Each call that no store decides
// takes the most that it may be charged of that, once so much is free. So the failure mode
// lets no more pass than comes free.
func (e *entry) stands(d *Denial, n int64, takes bool, now time.Duration) time.Duration {
	left := e.Sent + Standing - now
	//mutant:stands-one-minute
	if left <= 0 {
		return 0
	}
	taken := e.overflowed(e.taken.Load(), now)
	//mutant:stands-until-retry
	if until := e.until(taken, n); now < until {
		//mutant:others-have-not-taken
		d.take(time.Duration(max(0, taken)), e.uncounted.Load())
		return min(until-now, left)
	}
	if takes && e.refills() {
		e.uncounted.Store(true)
		if !e.take(n, now, 0) { // another call was first
			return e.stands(d, n, false, now)
		}
	}
	return 0
}

// take makes the state of the policy that denied what it is after calls have taken what
// comes free in so long. Those of the others are from before these calls. The store may
// not have counted them.
func (d *Denial) take(taken time.Duration, uncounted bool) {
	d.States = slices.Clone(d.States)
	s := &d.States[bits.TrailingZeros64(d.Bound)]
	s.RetryAfter, s.ResetAfter = s.RetryAfter+taken, s.ResetAfter+taken
	//mutant:uncounted-is-not-counted
	if uncounted {
		s.Known = backend.NotCounted
	}
}
