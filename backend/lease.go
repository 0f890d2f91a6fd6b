package backend

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// LeaseID names a lease. The client draws it from crypto/rand. It is a secret: who
// has it can settle.
type LeaseID [16]byte

// Short returns how the ID begins, as 8 characters. It is for logs: it settles nothing.
func (id LeaseID) Short() string { return base64.RawURLEncoding.EncodeToString(id[:6]) }

// The lengths of a lease.
const (
	MinLease = time.Second
	MaxLease = 24 * time.Hour
)

// Lease is a reservation as a request names it. A store keeps the reservation's
// costs, the instant that was charged and each policy's Identity under ID.
//
// A lease ends one Length after it was reserved or last extended. Then its slots
// of InFlight policies are free, and its other charges stand and age. The record
// stays one more Length, in which a settle still corrects the counts. Then it
// leaves by itself. A Reset of the key ends all leases of the key, records too.
type Lease struct {
	ID     LeaseID
	Length time.Duration // MinLease to MaxLease

	// Actual is, for a Settle, what was used: units, one per policy in the order
	// reserved. Nil is nothing of any policy: the reservation is cancelled.
	Actual []int64
	// Attempt names a Settle. The one that repeats the attempt which settled the lease
	// changes nothing and returns nil. So a lost answer can be asked for again, for
	// one Length after it.
	Attempt LeaseID
	// Unresolved says that the answer of the Reserve was lost. A Settle then leaves a
	// tombstone for twice Length, at least ten minutes, and charges Actual as a Record if
	// it finds no lease. A Reserve or a Settle that finds a tombstone changes nothing
	// and returns ErrNotHeld.
	Unresolved bool
	// Late, of a Reserve, keeps the lease's record for twice Length, at least ten minutes, and
	// what a Settle leaves of it as long. So a call that ran longer than its lease is still
	// settled by what it used. An Extend begins the time anew.
	Late bool
	// Named says that the ID is one of the caller's, such as that of a job. A Reserve by the list
	// and the costs of an open lease moves its end and returns ErrHeld; by others it is an
	// *InvalidError. What a Settle leaves refuses a Reserve only if that was sent before: the
	// first 8 bytes of both Attempts are instants. A lease that has ended is reserved anew.
	Named bool
	// Free says that a Reserve may cost nothing of any policy, since another request of
	// its call is charged. Its lease is kept, and a Settle charges what was used.
	Free bool
}

// The errors of leases; match with errors.Is.
var (
	// ErrNotHeld: the lease was settled before, or was reset, or its record has left.
	// Nothing was changed.
	ErrNotHeld = errors.New("headgate: lease not held, nothing changed")
	// ErrHeld: a Reserve under a caller's ID has found the lease open, and moved its end. It was
	// charged by the Reserve that opened it, and is settled once.
	ErrHeld = errors.New("headgate: lease is held already, its end was moved")
	// ErrLeaseEnded: the lease has ended and is not extended. Nothing was changed. A
	// Settle is possible for one Length more, so one without an error does not prove that
	// the lease's slots were held.
	ErrLeaseEnded = errors.New("headgate: lease has ended, not extended")
)

// ReservedOtherwise returns the error of a Reserve under the ID of an open lease of another list or
// other costs.
func ReservedOtherwise() error {
	return &InvalidError{What: "reservation ID", Value: "held for another list or other costs", Want: "those that it was reserved with"}
}

// ActualOf returns what a Settle by these policies names as used of the i-th, in units.
// That of a shadow may be more than the algorithm could count, and is cut to it.
func (l *Lease) ActualOf(policies []Policy, i int) int64 {
	switch p := &policies[i]; {
	case l.Actual == nil:
		return 0
	//mutant:shadow-actual-cut
	case p.Shadow:
		return min(l.Actual[i], p.Algorithm.Kind().MaxLimit())
	}
	return l.Actual[i]
}

// lateStays is for how long a Late lease, and a tombstone, stay at least.
const lateStays = 10 * time.Minute

// Stays returns for how long a lease of this length is kept from its begin, or the last
// Extend. That of a tombstone is the same from its Settle, and so is that of what a Settle
// leaves of a Late lease.
func Stays(length time.Duration, late bool) time.Duration {
	//mutant:late-lease-stays
	if late {
		return max(2*length, lateStays)
	}
	return 2 * length
}

// check refuses a lease that no store could keep.
func (l *Lease) check(op Op, policies []Policy) error {
	switch {
	case l == nil:
		return &InvalidError{What: "lease", Value: nil, Want: fmt.Sprintf("one, for a %v", op)}
	case l.ID == LeaseID{}:
		return &InvalidError{What: "lease ID", Value: "zero", Want: "16 random bytes"}
	case l.Length < MinLease || l.Length > MaxLease || l.Length%time.Millisecond != 0:
		return &InvalidError{What: "lease", Value: l.Length, Want: fmt.Sprintf("%v to %v in whole milliseconds", MinLease, MaxLease)}
	case op.Ends() && l.Actual != nil && len(l.Actual) != len(policies):
		return &InvalidError{What: "actual costs", Value: len(l.Actual), Want: fmt.Sprintf("one for each of %d policies", len(policies))}
	}
	if op.Ends() {
		return l.checkActual(policies)
	}
	return nil
}

func (l *Lease) checkActual(policies []Policy) error {
	for i, n := range l.Actual {
		k := policies[i].Algorithm.Kind()
		most := k.MaxLimit()
		if k.Leased() || policies[i].Shadow { // a slot is free, whatever is given for it: the lease may list another policy here
			most = rule.MaxCount
		}
		if n < 0 || n > most {
			return &InvalidError{What: "actual cost", Value: n, Want: fmt.Sprintf("0 to %d for policy %q", most, policies[i].Name)}
		}
	}
	return nil
}
