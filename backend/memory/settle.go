package memory

import (
	"cmp"
	"fmt"
	"unique"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// ofLease decides a call that has a lease. A Settle that wants states looks at what it
// has left, as a Peek does.
func (c *call) ofLease(looks []look, readings []backend.Reading) error {
	wanted := c.op.Ends() && c.Each != nil
	done, err := c.leased()
	if err == nil && !done {
		err = c.counted(looks, readings)
	}
	if err != nil || !wanted {
		return err
	}
	return c.left(looks, readings)
}

// left looks at what a Settle has left.
func (c *call) left(looks []look, readings []backend.Reading) error {
	c.Group, c.op, c.lease, c.reserved, c.looks = *c.Group.Look(), backend.Peek, nil, 0, true
	for i := range looks {
		//mutant:look-locks-overflow
		looks[i].shared = nil // the record's lock is not held any more
	}
	return c.counted(looks, readings)
}

// leased does what a request's lease asks for before its costs are looked at, and
// reports whether that was all.
//
// A Reserve goes on to its costs, unless its ID is in use. An ID is also in use if it was
// settled, or cancelled before its Reserve arrived.
func (c *call) leased() (done bool, err error) {
	ls := &c.stripe.mu.leases
	switch {
	case c.op.Held():
		if done, err = c.settle(); !done {
			c.recordInstead()
		}
	case c.op.Opens():
		ls.sweep(c.now, leaseLooks) // as many may leave as come
		l, by := ls.find(c.hashOf(c.lease.ID), c.now)
		switch named := c.lease.Named; {
		case l == nil && by == (settlement{}), named && l != nil && l.ended(c.now):
		//mutant:reserve-before-settle
		case named && l == nil && by.attempt[0] < halves(c.lease.Attempt)[0]:
		case named && l != nil:
			err = c.again(l)
		default:
			//mutant:reserve-meets-lease
			err = backend.ErrNotHeld
		}
	default:
		c.lease = nil // a request of another kind has none
	}
	return done, err
}

// again is a Reserve under the ID of an open lease: the same one, as it was stored.
func (c *call) again(l *lease) error {
	same := len(l.charges) == len(c.Policies)
	for i := 0; same && i < len(l.charges); i++ {
		//mutant:reserved-as-before
		same = l.charges[i].id == c.store.identityOf(&c.Policies[i], c.Sub) && (l.charges[i].spared || l.charges[i].units == c.CostOf(i))
	}
	switch {
	case !same:
		return backend.ReservedOtherwise()
	case l.reset:
		return backend.ErrNotHeld
	}
	return cmp.Or(c.extend(l), backend.ErrHeld)
}

// hashOf returns what the call's lease or borrower is found by. Of 128 random bits it has 116.
func (c *call) hashOf(id backend.LeaseID) leaseHash { return c.hash.ofLease(id) }

// leaseLooks is at how many leases a Reserve looks.
const leaseLooks = 4

// recordInstead makes the settlement of an unresolved lease a record of what was
// used. Slots have ended with the call.
func (c *call) recordInstead() {
	c.Costs, c.op = make([]int64, len(c.Policies)), backend.Record
	for i := range c.Costs {
		if !c.Policies[i].Algorithm.Kind().Leased() {
			c.Costs[i] = c.lease.ActualOf(c.Policies, i)
		}
	}
}

// settle ends a request's lease and corrects the counts that it charged, or moves
// its end. It looks only at what the lease keeps. It reports whether it is done: an
// unresolved lease that is not found has yet to be recorded.
func (c *call) settle() (done bool, err error) {
	ls, h := &c.stripe.mu.leases, c.hashOf(c.lease.ID)
	l, by := ls.find(h, c.now)
	fresh := c.settlement(l != nil && l.late)
	switch {
	case by != (settlement{}):
		//mutant:settle-repeated
		if c.op.Ends() && by.attempt == fresh.attempt && fresh.attempt != [2]int64{} {
			return true, nil
		}
		return true, backend.ErrNotHeld
	case l == nil && c.lease.Unresolved && c.op.Ends():
		return false, nil
	case l == nil:
		return true, backend.ErrNotHeld
	//mutant:extend-after-reset
	case l.reset && !c.op.Ends():
		return true, backend.ErrNotHeld
	case l.reset: // by another list: the slots are free, since the call has ended
		c.moveSlots(l, 0)
		// Another unresolved settle must not record what was used.
		//mutant:reset-leaves-tombstone
		if c.lease.Unresolved {
			ls.settle(h, settlement{until: fresh.until})
		}
		return true, backend.ErrNotHeld
	case !c.op.Ends():
		return true, c.extend(l)
	case c.lease.Actual != nil && len(c.lease.Actual) != len(l.charges):
		want := fmt.Sprintf("%d, one for each policy that was reserved", len(l.charges))
		return true, &backend.InvalidError{What: "actual costs", Value: len(c.lease.Actual), Want: want}
	}
	c.moveSlots(l, 0)
	c.correctAll(l)
	ls.settle(h, fresh)
	return true, nil
}

// correctAll replaces the estimates of a lease by what was used, nothing where no costs are given.
func (c *call) correctAll(l *lease) {
	for i := range l.charges {
		actual := int64(0)
		if c.lease.Actual != nil {
			actual = c.lease.ActualOf(c.Policies, i)
		}
		c.correct(&l.charges[i], actual)
	}
}

// extend moves the end of an open lease.
//
// A lease that has ended is not extended: its slots may be another's by now.
func (c *call) extend(l *lease) error {
	if l.ended(c.now) {
		return backend.ErrLeaseEnded
	}
	now := c.now // before that of the overflow, where its slots may be
	c.moveSlots(l, now+c.lease.Length.Microseconds())
	//mutant:slot-ends-with-lease
	l.extend(now, c.lease.Length) // the slots' end
	return nil
}

// moveSlots frees the lease's slots of InFlight policies, or holds them until another
// end where that is not 0.
//
// It goes by the charges of the lease, not by the policies of the call: another limiter may
// settle.
func (c *call) moveSlots(l *lease, to int64) {
	id := halves(c.lease.ID)[1]
	for i := range l.charges {
		if ch := &l.charges[i]; ch.id.kind().Leased() && ch.units > 0 && !ch.spared {
			a := ch.algorithm.Value()
			c.withRecord(ch, func(st *stripe, h hash, r *record) {
				w := st.words(h, ch.id, r)
				if a.Release(w, l.end, id) && to > 0 {
					var v rule.View // an Extend drops no ended slots, as in the script
					st.setWords(h, ch.id, a.Hold(w, &v, to, id))
					r.stay(to)
				}
			})
		}
	}
}

// correct replaces an estimate by what was used.
//
// Less than the estimate is given back at the instant of the charge, as far as that still
// counts. More is charged now.
func (c *call) correct(ch *charge, actual int64) {
	//mutant:spared-shadow-settled
	if ch.id.kind().Leased() || ch.spared {
		return
	}
	a := ch.algorithm.Value()
	switch {
	case actual < ch.units:
		c.withRecord(ch, func(st *stripe, h hash, r *record) {
			st.setWords(h, ch.id, a.GiveBack(st.words(h, ch.id, r), c.now+c.toWall(&a), ch.Charge, ch.units-actual))
		})
	case actual > ch.units:
		c.record(ch, &a, actual-ch.units)
	}
}

// withRecord calls f with the record that was charged, if it is there, and the lock
// of its stripe held.
//
// A record that has left was idle or reset. What the lease charged there counts no more,
// and nothing is left to correct.
func (c *call) withRecord(ch *charge, f func(*stripe, hash, *record)) {
	st, h := c.place(ch.id, ch.shared)
	if ch.shared != nil {
		c.lockOverflow()
		defer st.mu.Unlock()
	}
	if r := st.mu.records.find(h); r != nil {
		c.foldCharge(ch, st, h, r)
		f(st, h, r)
	}
}

// record charges n units now, in a record of the key's own if there is room for
// one.
//
// It makes a record also if the charged one has left or is the overflow's: what was used
// must count.
func (c *call) record(ch *charge, a *rule.Algorithm, n int64) {
	var shared *class
	if c.stripe.mu.records.find(c.hash.of(ch.id)) == nil && !c.store.reserve(c.stripe, c.now, ch.class) {
		shared = ch.class
		c.shares(shared)
	}
	st, h := c.place(ch.id, shared)
	if shared != nil {
		c.lockOverflow()
		defer st.mu.Unlock()
	}
	r := st.mu.records.find(h)
	if r == nil {
		st.mu.records.grow(1)
		r = st.insert(h, ch.id, a.Words(), ch.class)
	}
	c.foldCharge(ch, st, h, r)
	w := st.words(h, ch.id, r)
	toWall := c.toWall(a)
	v := a.View(w, c.now+toWall)
	//mutant:excess-beside-lent
	v.Beside = st.mu.lent[h]
	n = a.Recorded(&v, n)
	v.Beside = nil
	st.setWords(h, ch.id, a.Take(w, &v, n))
	st.stays(r, a.ResetAt(&v)-toWall)
}

// settlement returns what the call's lease leaves when it is settled: for one length, so
// that the settle can be repeated. That of an unresolved one is a tombstone, whether the
// lease was found or not. A Reserve or a Settle that comes later would charge again. That of
// a late one stays as long.
func (c *call) settlement(late bool) settlement {
	stays := c.lease.Length
	//mutant:unresolved-settle-stays
	if c.lease.Unresolved || late {
		stays = backend.Stays(stays, true)
	}
	return settlement{halves(c.lease.Attempt), c.now + stays.Microseconds()}
}

// keep keeps the lease of a Reserve that passed, or the tombstone of an unresolved lease
// that was recorded.
//
// The algorithm is kept with each charge. A settlement works by its numbers, also if the
// limiter that settles has others.
func (c *call) keep(looks []look) {
	if c.op.Records() {
		c.stripe.mu.leases.settle(c.hashOf(c.lease.ID), c.settlement(false))
		return
	}
	l := &lease{key: c.hash, late: c.lease.Late, charges: make([]charge, len(looks))}
	for i := range looks {
		a := &c.Policies[i].Algorithm
		l.charges[i] = charge{
			id: looks[i].id, units: c.CostOf(i), class: c.class(i), shared: looks[i].shared, spared: looks[i].lacks,
			Charge: a.Charged(looks[i].words, &looks[i].view), algorithm: unique.Make(*a),
		}
	}
	l.extend(c.now, c.lease.Length)
	c.stripe.mu.leases.insert(c.hashOf(c.lease.ID), l)
}
