package memory

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Loans: what processes hold of a count in advance stands beside its record, and what
// each borrower holds under its ID. Both leave as records do, while others call.

// borrower is what is kept of one ID.
type borrower struct {
	seq     uint32 // of its last Borrow
	lease   uint32 // the Borrow that lent what it holds; 0: nothing
	counted int64  // when it was counted last as a borrower
	until   int64
	of      []lentTo // per policy
}

func (b *borrower) leaves() int64 { return b.until }

// lentTo is what a borrower holds of one count, by the clock that the count follows.
type lentTo struct {
	end, units int64
	epoch      [8]byte
}

// borrowerStays is for how long a borrower is known after its last Borrow, beside two
// lengths of a lease.
const borrowerStays = 10 * time.Second

// borrower returns what is kept of the loan's ID, nil for a new one. It returns an error
// if that belongs to another list, or the Borrow is not the last.
func (c *call) borrower() (*borrower, error) {
	b := c.stripe.mu.borrowers[c.loanHash()]
	switch {
	case b == nil || b.until <= c.now:
		return nil, nil
	case len(b.of) != len(c.Policies):
		return nil, &backend.InvalidError{What: "loan ID", Value: "of another list", Want: "one ID per list of policies"}
	//mutant:borrow-sent-twice
	case c.loan.Seq <= b.seq:
		return nil, backend.ErrNotHeld
	}
	return b, nil
}

func (c *call) loanHash() leaseHash {
	id := halves(c.loan.ID)
	return leaseHash{uint64(id[0]) ^ uint64(c.hash), uint64(id[1])}
}

// borrow decides a Borrow with the records that were found. The counts that keys share
// while the store is full are not lent.
func (c *call) borrow(looks []look, readings []backend.Reading) error {
	b, err := c.borrower()
	if err != nil {
		c.store.removed(c.reserved)
		return err
	}
	fits := c.look(looks)
	if slices.ContainsFunc(looks, func(l look) bool { return l.shared }) {
		c.loan.Lent = backend.Lent{}
		if b != nil {
			c.loan.Lent.Settled = backend.NotHeld
		}
		c.finish(fits, looks, readings)
		return nil
	}
	n := loan{call: c, looks: looks, add: make([]int64, len(looks)), had: make([]bool, len(looks))}
	n.settle(b)
	n.lend(b)
	n.write(readings)
	return nil
}

// loan is a Borrow under way.
type loan struct {
	*call
	looks []look
	add   []int64 // per policy: units that are charged now
	had   []bool  // per policy: it had room for the cost
	keep  int64   // units that are lent again
}

// nowOf returns the instant by the clock that a policy's count follows.
func (n *loan) nowOf(i int) int64 { return n.now + n.looks[i].toWall }

// settle frees what the borrower holds, and charges what it used.
func (n *loan) settle(b *borrower) {
	asked := n.loan.Held != [backend.MaxHeld]backend.Held{}
	n.loan.Lent = backend.Lent{}
	if asked {
		n.loan.Lent.Settled = backend.NotHeld
	}
	if b == nil || b.lease == 0 {
		return
	}
	at := slices.IndexFunc(n.loan.Held[:], func(h backend.Held) bool { return h.Seq == b.lease })
	if at < 0 {
		return
	}
	used, settled := n.loan.Held[at].Used, backend.Charged
	n.keep = n.loan.Keep
	for i := range b.of {
		l, of := &n.looks[i], &b.of[i]
		switch {
		//mutant:settle-after-end
		case of.end <= n.nowOf(i): // charged whole
			settled = max(settled, backend.Ended)
		//mutant:reset-ends-loans
		case l.lent == nil || l.lent.Epoch != of.epoch:
			settled = max(settled, backend.NotHeld)
		default:
			l.lent.Remove(of.end, of.units)
			n.add[i] = n.Policies[i].Algorithm.Recorded(&l.view, min(used, of.units))
		}
		if !n.Policies[i].Shadow {
			n.keep = min(n.keep, max(0, of.units-used))
		}
	}
	if settled != backend.Charged {
		n.keep = 0
	}
	n.loan.Lent.Settled = settled
}

// room returns the units that the i-th policy has left.
func (n *loan) room(i int) int64 {
	return n.Policies[i].Algorithm.Max() - n.looks[i].view.Counts() - n.add[i]
}

// least returns the least of the enforced policies' rooms, or of all where all are
// shadows.
func (n *loan) least() int64 {
	least := algo.MaxUnits
	for i := range n.looks {
		if !n.Policies[i].Shadow {
			least = min(least, n.room(i))
		}
	}
	return max(least, 0)
}

// lend charges the cost if it fits beside what is kept, and lends.
func (n *loan) lend(b *borrower) {
	n.keep = min(n.keep, n.least())
	pass, counted := true, int64(0)
	for i := range n.looks {
		if n.had[i] = n.room(i) >= n.Cost; !n.Policies[i].Shadow {
			//mutant:kept-units-first
			n.had[i] = n.room(i)-n.keep >= n.Cost
			pass = pass && n.had[i]
		}
	}
	for i := range n.looks {
		if pass && n.had[i] {
			n.add[i] += n.Cost
		}
	}
	if b != nil {
		counted = b.counted
	}
	borrowers, left, length := int64(1), int64(0), n.loan.Length.Microseconds()
	ends := make([]int64, len(n.looks))
	for i := range n.looks {
		l, a := &n.looks[i], &n.Policies[i].Algorithm
		if l.lent == nil {
			l.lent = &algo.Lent{Epoch: n.loan.Epoch}
		}
		if n.loan.Want > 0 {
			l.lent.Count(n.nowOf(i), length, counted+l.toWall)
		}
		borrowers = max(borrowers, l.lent.Borrowers())
		ends[i] = algo.LentEnd(n.nowOf(i), length, a.Closes(&l.view))
		if t := ends[i] - n.nowOf(i); i == 0 || t < left {
			left = t
		}
	}
	units := algo.LentShare(n.loan.Want, n.keep, n.least(), borrowers, left, length)
	n.lendUntil(b, units, ends)
	n.loan.Lent.Borrowers = borrowers
	if units > 0 {
		n.loan.Lent.Units, n.loan.Lent.Ends = units, time.Duration(left)*time.Microsecond
	}
}

// lendUntil lends each policy's part, and keeps it under the borrower's ID.
func (n *loan) lendUntil(b *borrower, units int64, ends []int64) {
	fresh := &borrower{seq: n.loan.Seq, of: make([]lentTo, len(ends))}
	if b != nil {
		fresh.counted = b.counted
	}
	if n.loan.Want > 0 {
		fresh.counted = n.now
	}
	fresh.until = n.now + 2*n.loan.Length.Microseconds() + borrowerStays.Microseconds()
	if units > 0 {
		fresh.lease = n.loan.Seq
	}
	for i := range ends {
		m, lent := units, n.looks[i].lent
		if n.Policies[i].Shadow {
			m = max(0, min(m, n.room(i)))
		}
		fresh.of[i] = lentTo{ends[i], m, lent.Epoch}
		if m > 0 {
			lent.Add(ends[i], m)
		}
	}
	n.stripe.keepBorrower(n.loanHash(), fresh, n.now)
}

// write stores the counts and what is lent beside them.
func (n *loan) write(readings []backend.Reading) {
	for i := range n.looks {
		l, a := &n.looks[i], &n.Policies[i].Algorithm
		st, h := n.place(l.id, false)
		if l.record == nil {
			l.record = st.insert(h, l.id, a.Words())
			l.words = st.words(h, l.id, l.record)
			n.reserved--
		}
		if n.add[i] > 0 {
			l.words = a.Take(l.words, &l.view, n.add[i])
		}
		st.setWords(h, l.id, l.words)
		st.setLent(h, l.lent)
		n.view(l, a)
		readings[i] = l.reading(a)
		if !n.had[i] {
			readings[i].RetryAt = n.retryAt(l, a)
		}
		st.stays(l.record, max(readings[i].ResetAt, n.now+1))
	}
	n.store.removed(n.reserved)
}

// retryAt returns when the cost fits that does not now.
func (n *loan) retryAt(l *look, a *algo.Algorithm) int64 {
	return a.RetryAt(l.words, &l.view, n.Cost) - l.toWall
}

// fold charges what was lent until an instant that has passed.
func (c *call) fold(l *look, a *algo.Algorithm) {
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
func (st *stripe) setLent(h hash, l *algo.Lent) {
	if st.mu.lent == nil {
		st.mu.lent = map[hash]*algo.Lent{}
	}
	st.mu.lent[h] = l
}

// dropLent forgets what is lent of a record, and the map with the last.
func (st *stripe) dropLent(h hash) {
	if delete(st.mu.lent, h); len(st.mu.lent) == 0 {
		st.mu.lent = nil
	}
}

// keepBorrower keeps what an ID holds, and looks at a few others that may have left.
func (st *stripe) keepBorrower(h leaseHash, b *borrower, now int64) {
	if st.mu.borrowers == nil {
		st.mu.borrowers = map[leaseHash]*borrower{}
	}
	st.mu.borrowers = swept(st.mu.borrowers, &st.mu.peak, now, leaseLooks)
	st.mu.borrowers[h] = b
}
