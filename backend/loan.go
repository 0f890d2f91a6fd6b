package backend

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// Loan is what a Borrow asks for beside its cost: units of a key in advance, for a
// process to decide with by itself. A store keeps one record per ID, with the loan
// that the ID holds, and none of the units' uses.
type Loan struct {
	ID    LeaseID       // of the borrower: one per process, key and list of policies; 16 random bytes
	Seq   uint32        // of this Borrow, above that of every earlier one of the ID; its loan has this number
	Epoch [8]byte       // random; it marks what is lent if nothing was lent before
	Term  time.Duration // of the loan at most: rule.MinBorrow to rule.MaxBorrow in whole milliseconds
	Want  int64         // the most units to hold, with those of Keep; 0 ends the loan
	Keep  int64         // units of the loan that ends now which stay in use: they are part of the next one
	Held  [MaxHeld]Held // the loans of which the ID may hold one, and no other can be in use

	// Lent is the answer, written before Do returns without an error.
	Lent Lent
	// Each, if it is not nil, has one number per policy. Of a list with shadows each becomes
	// the units that were lent of its policy. They are fewer than Lent.Units only of a shadow.
	Each []int64
}

// MaxHeld is the maximum number of loans that a borrower can be in doubt about.
const MaxHeld = 4

// MaxLoan is the maximum number of units that a Loan asks for, keeps or settles.
const MaxLoan = int64(rule.MaxLimit)

// MaxTerms is for how many Terms a loan that is not settled stands at most.
const MaxTerms = rule.MaxTerms

// Held is a loan that a borrower may hold, with what it has used of it.
type Held struct {
	Seq  uint32 // of the Borrow that lent it; 0 is none
	Used int64  // units
}

// Lent is what a Borrow has settled and lent.
type Lent struct {
	Units     int64         // in this loan, those of Keep included; 0 is no loan
	Ends      time.Duration // after the instant of the decision; a unit may be used before, and not at it
	Settled   Settled
	Borrowers int64 // processes that borrowed of the count lately, this one included
	Recalled  bool  // give back the unused units and borrow none for a while: a call was denied because of lent units, or a share is nearly spent
}

// Settled is what became of the loan that a Borrow settles.
type Settled uint8

// What became of a loan.
const (
	NoneHeld Settled = iota // the Borrow named none
	Charged                 // what was used is charged, and the rest is free
	Ended                   // it had ended and was charged whole
	NotHeld                 // no loan of these is held, because of a Reset or a lost answer
)

// check refuses a loan that no store could keep.
func (l *Loan) check(g *Group) error {
	switch {
	case l == nil:
		return &InvalidError{What: "loan", Value: nil, Want: "one, for a Borrow"}
	case l.ID == LeaseID{}:
		return &InvalidError{What: "loan ID", Value: "zero", Want: "16 random bytes"}
	case l.Seq == 0:
		return &InvalidError{What: "loan number", Value: 0, Want: "at least 1"}
	case l.Each != nil && len(l.Each) != len(g.Policies):
		return &InvalidError{What: "units lent of each policy", Value: len(l.Each), Want: fmt.Sprintf("none or %d", len(g.Policies))}
	case g.Costs != nil:
		return &InvalidError{What: "costs", Value: len(g.Costs), Want: "one cost for all policies, of a Borrow"}
	}
	if err := CheckBorrow(l.Term); err != nil {
		return err
	}
	for i := range g.Policies {
		if k := g.Policies[i].Algorithm.Kind(); !k.Lends() {
			return &InvalidError{What: "borrow", Value: k, Want: "an algorithm whose units can be lent"}
		}
	}
	units := []int64{l.Want, l.Keep}
	for _, h := range l.Held {
		units = append(units, h.Used)
	}
	for _, n := range units {
		if n < 0 || n > MaxLoan {
			return &InvalidError{What: "units of a loan", Value: n, Want: fmt.Sprintf("0 to %d", MaxLoan)}
		}
	}
	return nil
}

// CheckBorrow refuses a term for which nothing can be lent.
func CheckBorrow(t time.Duration) error {
	if t < rule.MinBorrow || t > rule.MaxBorrow || t%time.Millisecond != 0 {
		return &InvalidError{What: "borrow", Value: t, Want: fmt.Sprintf("%v to %v in whole milliseconds", rule.MinBorrow, rule.MaxBorrow)}
	}
	return nil
}
