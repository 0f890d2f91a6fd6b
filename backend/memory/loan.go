package memory

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	codec "github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/internal/invariant"
)

// Loans: what processes hold of a count in advance stands beside its record, and what
// each borrower holds under its ID. Both leave as records do, while others call.

// borrower is the record of one ID. Its units of a count end by the clock that the count
// follows. The epoch is that of the count's Lent when the units were lent. A Reset ends that, so
// units of an older epoch are lost and not given back.
type borrower struct{ codec.Borrower }

func (b borrower) leaves() int64 { return b.Until }

// borrowerStays is for how long at least a borrower is known after its last Borrow, beside
// two terms. It is at most twice that: the script moves the expiry of a record
// once in this time.
const borrowerStays = 5 * time.Second

// borrower returns what is kept of the loan's ID, which is zero for a new one. It returns an
// error if that belongs to another list, or the Borrow is not the last.
func (c *call) borrower() (b borrower, err error) {
	b = c.stripe.mu.borrowers.kept[c.hashOf(c.loan.ID)]
	switch {
	case b.Until <= c.now:
		return borrower{}, nil
	case len(b.Of) != len(c.Policies):
		err = &backend.InvalidError{What: "loan ID", Value: "of another list", Want: "one ID per list of policies"}
	//mutant:borrow-sent-twice
	case c.loan.Seq <= b.Seq:
		err = backend.ErrNotHeld
	}
	return b, err
}

// borrow decides a Borrow with the records that were found. The counts that keys share
// while the store is full are not lent.
//
// A Borrow replaces what its ID holds. It settles the loan that it names, charges its own
// cost, and lends again, all at one instant. The three steps only view and collect; write
// stores the outcome.
func (c *call) borrow(looks []look, readings []backend.Reading) error {
	b, err := c.borrower()
	if err != nil {
		c.unreserve(looks)
		return err
	}
	fits := c.look(looks)
	if slices.ContainsFunc(looks, func(l look) bool { return l.shared != nil }) {
		c.loan.Lent = backend.Lent{}
		if b.Seq > 0 {
			c.loan.Lent.Settled = backend.NotHeld
		}
		c.finish(fits, looks, readings)
		return nil
	}
	n := loan{call: c, before: b, looks: looks, add: make([]int64, len(looks)), due: make([]int64, len(looks)), had: make([]bool, len(looks))}
	n.settle()
	n.lend()
	n.write(readings)
	return nil
}

// loan is a Borrow under way. before is what its ID held until now.
type loan struct {
	*call
	before borrower
	looks  []look
	add    []int64 // per policy: units that are charged now
	due    []int64 // per policy: when the holder of what is settled was to stop
	had    []bool  // per policy: it had room for the cost
	keep   int64   // units that are lent again
	used   int64   // units of the loan that is settled
}

// nowOf returns the instant by the clock that a policy's count follows.
// A Calendar follows the wall clock, all others the store's.
func (n *loan) nowOf(i int) int64 { return n.now + n.looks[i].toWall }

// settle frees what the borrower holds, and charges what it used.
//
// A loan that has ended was charged whole by fold. One whose Lent is of another epoch was
// removed by a Reset. In both cases nothing is left to give back or to keep. The worst
// outcome of all enforced policies is the answer. The units to keep are in use meanwhile. So if one
// of these keeps none, the others charge them too.
func (n *loan) settle() {
	b := &n.before
	n.loan.Lent = backend.Lent{}
	if n.loan.Held != [backend.MaxHeld]backend.Held{} {
		n.loan.Lent.Settled = backend.NotHeld
	}
	at := slices.IndexFunc(n.loan.Held[:], func(h backend.Held) bool { return h.Seq == b.Loan })
	if at < 0 || b.Loan == 0 {
		return
	}
	settled := backend.Charged
	for i := range backend.Enforced(n.Policies) {
		settled = max(settled, n.stands(i))
	}
	used, keep := n.loan.Held[at].Used, n.loan.Keep
	charge := used
	if settled != backend.Charged {
		//mutant:kept-units-charged
		charge += keep
		keep = 0
	}
	for i := range b.Of {
		l, of := &n.looks[i], &b.Of[i]
		if n.stands(i) == backend.Charged {
			n.due[i] = l.lent.Remove(of.End, of.Units)
			n.add[i] = n.Policies[i].Algorithm.Recorded(&l.view, min(charge, of.Units))
		}
	}
	for i := range backend.Enforced(n.Policies) {
		keep = min(keep, max(0, b.Of[i].Units-used))
	}
	n.keep, n.used, n.loan.Lent.Settled = keep, used, settled
}

// stands returns what becomes of the i-th policy's part of the loan that is settled.
func (n *loan) stands(i int) backend.Settled {
	l, of := &n.looks[i], &n.before.Of[i]
	switch {
	//mutant:settle-after-end
	case of.End <= n.nowOf(i): // charged whole
		return backend.Ended
	//mutant:reset-ends-loans
	case l.lent == nil || l.lent.Epoch != of.Epoch:
		return backend.NotHeld
	}
	return backend.Charged
}

// room returns the units that the i-th policy has left.
//
// Counts includes what is lent to all borrowers, so lent units are never lent twice. The
// result is negative if a Record went above the limit.
func (n *loan) room(i int) int64 {
	return n.Policies[i].Algorithm.Max() - n.looks[i].view.Counts() - n.add[i]
}

// least returns the least of the enforced policies' rooms, as far as units are lent of each.
// It is MaxUnits where all are shadows.
func (n *loan) least() int64 {
	least := rule.MaxUnits
	for i := range backend.Enforced(n.Policies) {
		//mutant:lent-is-bounded
		least = min(least, n.room(i)-n.withheld(i), rule.MaxUnits-n.looks[i].lent.Sum())
	}
	return max(least, 0)
}

// lend charges the cost if it fits beside what is kept, and lends.
//
// The cost goes before new units and after those that are kept. The process may have used
// the kept ones already, so they stay lent also where a count is above its limit. All
// policies lend the same number of units, each until an end of its own. The answer names
// the first instant at which the holder is to stop.
func (n *loan) lend() {
	pass := true
	for i := range n.looks {
		//mutant:kept-units-first
		n.had[i] = n.room(i)-n.kept(i) >= n.Cost
		pass = pass && (n.had[i] || n.Policies[i].Shadow)
	}
	for i := range n.looks {
		if pass && n.had[i] {
			n.add[i] += n.Cost
		}
	}
	borrowers, until, left := n.until()
	units := rule.LentShare(n.loan.Want, n.keep, n.least(), borrowers, left, n.loan.Term.Microseconds())
	if invariant.Checked {
		invariant.Holds(n.keep >= 0 && n.keep <= units, "units that are kept stay lent")
	}
	n.lendUntil(units, until)
	n.loan.Lent.Borrowers = borrowers
	if units > 0 {
		n.loan.Lent.Units, n.loan.Lent.Ends = units, time.Duration(left)*time.Microsecond
	}
}

// until returns how many processes borrow, until when units of each policy are lent, and for
// how long the holder may use them.
func (n *loan) until() (borrowers int64, until []rule.LentUntil, left int64) {
	length := n.loan.Term.Microseconds()
	borrowers, until, left = 1, make([]rule.LentUntil, len(n.looks)), length
	for i := range n.looks {
		l, a := &n.looks[i], &n.Policies[i].Algorithm
		if l.lent == nil {
			l.lent = &rule.Lent{Epoch: n.loan.Epoch}
		}
		if n.loan.Want > 0 {
			l.lent.Count(n.nowOf(i), length, n.before.Counted+l.toWall)
		}
		until[i] = rule.LentEnd(n.nowOf(i), length, a.Closes(&l.view))
	}
	for i := range backend.Enforced(n.Policies) {
		u := &until[i]
		if n.recalled(i) {
			n.loan.Lent.Recalled = true
			if n.keep > 0 {
				u.End, u.Due = min(u.End, n.before.Of[i].End), min(u.Due, n.due[i])
			}
		}
		borrowers, left = max(borrowers, n.looks[i].lent.Borrowers()), min(left, max(0, u.Due-n.nowOf(i)))
	}
	return borrowers, until, left
}

// kept returns how many of the units that stay in use are of the i-th policy. Of a shadow fewer
// may have been lent, and none if its part has ended.
func (n *loan) kept(i int) int64 {
	switch {
	case n.keep == 0 || !n.Policies[i].Shadow:
		return n.keep
	case n.stands(i) != backend.Charged:
		return 0
	}
	return min(n.keep, max(0, n.before.Of[i].Units-n.used))
}

// recalled reports whether the i-th policy lends nothing, and wants back what is kept. Then it
// has no room for a call that was denied because units are lent. The Borrow may be such a call.
func (n *loan) recalled(i int) bool {
	l, a := &n.looks[i], &n.Policies[i].Algorithm
	//mutant:denied-borrow-recalls
	if !n.had[i] && l.view.Used+n.add[i]+n.Cost <= a.Max() {
		l.lent.Recall(a, n.nowOf(i), n.Cost)
	}
	above := n.withheld(i)
	//mutant:recalled-ends
	return above > 0 && n.room(i)-above < max(n.keep, 1)
}

// withheld returns the units of the i-th policy's limit that are not lent, for a call that was
// denied.
func (n *loan) withheld(i int) int64 {
	return max(0, n.Policies[i].Algorithm.Max()-n.looks[i].lent.LendsTo(n.nowOf(i)))
}

// lendUntil lends each policy's part, and keeps it under the borrower's ID.
//
// Each policy lends what it has room for of the units, and the enforced ones have room for all.
// So a shadow is charged as if each unit had been asked for by itself.
func (n *loan) lendUntil(units int64, until []rule.LentUntil) {
	fresh := borrower{codec.Borrower{Seq: n.loan.Seq, Counted: n.before.Counted, Of: make([]codec.LentTo, len(until))}}
	if n.loan.Want > 0 {
		fresh.Counted = n.now
	}
	fresh.Until = n.before.Until
	least := n.now + 2*n.loan.Term.Microseconds() + borrowerStays.Microseconds()
	if spare := fresh.Until - least; spare < 0 || spare > borrowerStays.Microseconds() {
		fresh.Until = least + borrowerStays.Microseconds()
	}
	if units > 0 {
		fresh.Loan = n.loan.Seq
	}
	for i, u := range until {
		lent := n.looks[i].lent
		//mutant:kept-stays-lent
		m := max(n.kept(i), min(units, n.room(i), rule.MaxUnits-lent.Sum()))
		fresh.Of[i] = codec.LentTo{End: u.End, Units: m, Epoch: lent.Epoch}
		if n.loan.Each != nil {
			n.loan.Each[i] = m
		}
		if m > 0 {
			u.Units = m
			lent.Add(u)
		}
	}
	n.stripe.mu.borrowers.sweep(n.now, leaseLooks)
	n.stripe.mu.borrowers.put(n.hashOf(n.loan.ID), fresh)
}

// write stores the counts and what is lent beside them.
//
// The readings are taken of what was written: the caller gets the state after its Borrow. A
// record of which only the lent units count is kept until the next instant at least. One
// that is idle at once could be swept, and its Lent with it.
func (n *loan) write(readings []backend.Reading) {
	for i := range n.looks {
		l, a := &n.looks[i], &n.Policies[i].Algorithm
		st, h := n.place(l.id, nil)
		if l.record == nil {
			l.record = st.insert(h, l.id, a.Words(), n.class(i))
			l.words = st.words(h, l.id, l.record)
			n.reserved--
			l.holds = false
		}
		if n.add[i] > 0 {
			l.words = a.Take(l.words, &l.view, n.add[i])
		}
		st.setWords(h, l.id, l.words)
		st.setLent(h, l.lent)
		n.view(l, a)
		readings[i] = l.reading(a)
		if !n.had[i] {
			readings[i].RetryAt, readings[i].Level = a.RetryAt(l.words, &l.view, n.Cost)-l.toWall, a.Level(&l.view)
		}
		st.stays(l.record, max(readings[i].ResetAt, n.now+1))
	}
	n.unreserve(n.looks)
}

// fold charges what was lent until an instant that has passed.
//
// Units of a loan that was not settled count as used. fold runs whenever the count is
// viewed, so no timer is needed.
func (c *call) fold(l *look, a *rule.Algorithm) {
	st, h := c.place(l.id, l.shared)
	l.words = l.lent.Fold(a, l.words, c.now+l.toWall)
	st.setWords(h, l.id, l.words)
	if l.lent.Idle(c.now + l.toWall) {
		st.dropLent(h)
		l.lent = nil
	}
}

// foldCharge charges what was lent of a count that a settle is about to change.
func (c *call) foldCharge(ch *charge, st *stripe, h hash, r *record) {
	//mutant:settle-folds-first
	if lent := st.mu.lent[h]; lent != nil {
		a := ch.algorithm.Value()
		st.setWords(h, ch.id, lent.Fold(&a, st.words(h, ch.id, r), c.now+c.toWall(&a)))
	}
}

// setLent keeps what is lent of a record.
func (st *stripe) setLent(h hash, l *rule.Lent) {
	if st.mu.lent == nil {
		st.mu.lent = map[hash]*rule.Lent{}
	}
	st.mu.lent[h] = l
}

// dropLent forgets what is lent of a record, and the map with the last.
func (st *stripe) dropLent(h hash) {
	if delete(st.mu.lent, h); len(st.mu.lent) == 0 {
		st.mu.lent = nil
	}
}
