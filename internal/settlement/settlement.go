// Package settlement settles what a call has reserved: a Lease for each key. It keeps the
// settlements that the process has sent. It decides which ID each is sent under, so that a
// repeated one is charged once, and which of them was the first.
package settlement

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// set is the leases that one request settles, and their settlements. It is one lease, or those of
// all alternatives of which it is not known which one was charged. It is safe for concurrent use.
type set struct {
	leases []*Lease
	one    [1]*Lease // of a set of one
	mu     struct {
		sync.Mutex
		settled bool
		refused bool      // a Commit was refused: what was used is not known
		won     []int64   // what this process settled by, if it was the first; nil: it was not
		tried   []attempt // settlements whose outcomes are not known, the last one last
		begun   time.Time
	}
}

// begin notes that the lease was begun or extended no earlier than at an instant.
func (s *set) begin(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//mutant:extension-noted
	if at.After(s.mu.begun) {
		s.mu.begun = at
	}
}

// begun is no later than when the lease was last begun or extended. It is zero if another
// process began the lease, and this one has not extended it.
func (s *set) begun() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.begun
}

// attempt is one settlement. Its ID shows the store that it is the same when it is repeated.
type attempt struct {
	id      backend.LeaseID
	actual  []int64
	sending bool
	lost    bool // an answer was lost: the store may have settled
}

// attempt makes the lease a settlement by these actual costs, which it keeps, with the ID of an
// earlier one by the same costs. It returns false if the lease is known to be settled. One that
// is under way keeps its ID for itself: of two at once only one wins.
func (s *set) attempt(lease *backend.Lease, actual []int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//mutant:settled-stays
	if s.mu.settled {
		return false
	}
	a := attempt{}
	//mutant:same-attempt
	same := func(b attempt) bool { return !b.sending && slices.Equal(b.actual, actual) }
	if i := slices.IndexFunc(s.mu.tried, same); i >= 0 {
		a = s.mu.tried[i]
		s.mu.tried = slices.Delete(s.mu.tried, i, i+1)
	} else {
		a.id = newAttempt(s.leases[0].Asked.Named)
	}
	a.actual, a.sending = actual, true
	s.mu.tried = append(s.mu.tried, a)
	lease.Actual, lease.Attempt = a.actual, a.id
	return true
}

// newAttempt returns the ID of an attempt. That of a named lease begins with the time, by which a
// Reserve that was sent before a Settle is refused.
func newAttempt(named bool) (id backend.LeaseID) {
	_, _ = rand.Read(id[:]) // never fails
	if named {
		binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMicro()))
	}
	return id
}

// answered returns the error of an attempt that was sent. Once an answer was lost, a refusal of the
// same settlement does not show that nothing was counted. It stays perhaps counted until a
// store decides. That holds for one beside it too, which has an ID of its own.
func (s *set) answered(ctx context.Context, lease *backend.Lease, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	//mutant:lost-settle-beside
	lost := func(a attempt) bool { return a.lost && slices.Equal(a.actual, lease.Actual) }
	switch {
	case errors.Is(err, backend.ErrPerhapsCounted):
		s.mu.tried[s.index(lease)].lost = true
		return err
	//mutant:lost-settle-stays-unknown
	case decided(err) || !slices.ContainsFunc(s.mu.tried, lost):
		return err
	}
	return backend.Wrap(backend.ErrPerhapsCounted, cmp.Or(ctx.Err(), err)) // a store's error of an ended context says "not counted"
}

// decided reports whether an error shows the outcome of all tries of a settlement.
func decided(err error) bool {
	return err == nil || errors.Is(err, backend.ErrNotHeld) || errors.As(err, new(*backend.InvalidError))
}

// index returns the index of the lease's attempt.
func (s *set) index(lease *backend.Lease) int {
	return slices.IndexFunc(s.mu.tried, func(a attempt) bool { return a.id == lease.Attempt })
}

// ended records the outcome of an attempt. One that was refused is forgotten. One that was
// too late leaves the earlier ones whose outcomes are unknown: one of them may have been
// the first.
func (s *set) ended(lease *backend.Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(lease)
	switch late := errors.Is(err, backend.ErrNotHeld); {
	case err == nil:
		s.mu.settled, s.mu.won = true, lease.Actual
	//mutant:refused-settle-forgotten
	case late || errors.As(err, new(*backend.InvalidError)):
		s.mu.tried = slices.Delete(s.mu.tried, i, i+1)
		//mutant:late-settle-leaves-lost-one
		s.mu.settled = s.mu.settled || late && len(s.mu.tried) == 0
	default:
		s.mu.tried[i].sending = false
	}
}

// wonBy reports whether this process has settled the lease by the same actual costs.
func (s *set) wonBy(actual []int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.won != nil && slices.Equal(s.mu.won, actual)
}

// settled reports whether the lease is known to be settled.
func (s *set) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.settled
}

// sending reports whether a settlement is under way.
func (s *set) sending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.settled && slices.ContainsFunc(s.mu.tried, func(a attempt) bool { return a.sending })
}

// refuse records that a Commit was refused for its lists.
func (s *set) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refused = true
}

// final returns the actual costs of a Close. They are those of the last settlement whose
// outcome is not known, else the estimate if a Commit was refused, else nothing.
func (s *set) final(estimate []int64) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.mu.tried); n > 0 {
		return s.mu.tried[n-1].actual
	}
	//mutant:refused-commit-keeps-estimate
	if s.mu.refused {
		return estimate
	}
	return make([]int64, len(estimate))
}
