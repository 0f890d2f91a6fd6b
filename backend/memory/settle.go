package memory

import (
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// leased does what a request's lease asks for before its costs are looked at, and
// reports whether that was all.
func (c *call) leased() (done bool, err error) {
	ls := &c.stripe.mu.leases
	switch c.op {
	case backend.Settle, backend.Extend:
		if done, err = c.settle(); !done {
			c.recordInstead()
		}
	case backend.Reserve:
		ls.sweep(c.now, leaseLooks)                            // as many may leave as come
		if ls.find(halves(c.lease.ID), c.hash, c.now) != nil { // mutant: reserve-meets-lease
			err = backend.ErrNotHeld
		}
	default:
		c.lease = nil // a request of another kind has none
	}
	return done, err
}

// leaseLooks is at how many leases a Reserve looks.
const leaseLooks = 4

// recordInstead makes the settlement of an unresolved lease a record of what was
// used. Slots have ended with the call.
func (c *call) recordInstead() {
	g := *c.Group
	g.Costs = make([]int64, len(g.Policies))
	for i := range c.lease.Actual {
		if !g.Policies[i].Algorithm.Kind().Leased() {
			g.Costs[i] = c.lease.Actual[i]
		}
	}
	c.Group, c.op = &g, backend.Record
}

// settle ends a request's lease and corrects the counts that it charged, or moves
// its end. It looks only at what the lease keeps. It reports whether it is done: an
// unresolved lease that is not found has yet to be recorded.
func (c *call) settle() (done bool, err error) {
	ls, id := &c.stripe.mu.leases, halves(c.lease.ID)
	l := ls.find(id, c.hash, c.now)
	switch {
	case l == nil && c.lease.Unresolved && c.op == backend.Settle:
		return false, nil
	case l == nil:
		return true, backend.ErrNotHeld
	case l.state() != open:
		if c.op == backend.Settle && l.attempt() == halves(c.lease.Attempt) && c.lease.Attempt != (backend.LeaseID{}) { // mutant: settle-repeated
			return true, nil
		}
		return true, backend.ErrNotHeld
	case ls.wasReset(l):
		c.endSlots(l, 0)
		ls.settle(l, settled, [2]int64{})
		return true, backend.ErrNotHeld
	case c.op == backend.Extend:
		return true, c.extend(l)
	}
	w := ls.charges(l)
	if n := len(w) / chargeWords; c.lease.Actual != nil && len(c.lease.Actual) != n {
		return true, &backend.InvalidError{What: "actual costs", Value: len(c.lease.Actual), Want: "one for each policy that was reserved"}
	}
	for i := range len(w) / chargeWords {
		actual := int64(0)
		if c.lease.Actual != nil {
			actual = c.lease.Actual[i]
		}
		ch := chargeOf(w[i*chargeWords:])
		c.correct(&ch, actual, l[endWord])
	}
	ls.settle(l, settled, halves(c.lease.Attempt))
	return true, nil
}

// extend moves the end of an open lease.
func (c *call) extend(l lease) error {
	if l[endWord] <= c.now { // mutant: ended-not-extended
		return backend.ErrLeaseEnded
	}
	end := c.now + c.lease.Length.Microseconds()
	c.endSlots(l, end)
	l[endWord] = end
	l.setLength(c.lease.Length)
	ls := &c.stripe.mu.leases
	ls.horizon = max(ls.horizon, end+c.lease.Length.Microseconds())
	return nil
}

// endSlots frees the lease's slots of InFlight policies, or holds them until
// another end where that is not 0.
func (c *call) endSlots(l lease, end int64) {
	w := c.stripe.mu.leases.charges(l)
	for ; len(w) >= chargeWords; w = w[chargeWords:] {
		if ch := chargeOf(w); ch.id.kind().Leased() && ch.units > 0 {
			c.withRecord(&ch, func(st *stripe, r record) { c.moveSlot(st, r, l[endWord], end) })
		}
	}
}

func (c *call) moveSlot(st *stripe, r record, from, to int64) {
	w, id := st.words(r), halves(c.lease.ID)[1]
	if a := algo.InFlight(algo.MaxLogLimit); a.Release(w, from, id) && to > 0 {
		v := a.View(w, 0) // an Extend drops no ended slots, as in the script
		st.setWords(r, a.Hold(w, &v, to, id))
		r.stay(to, c.now)
	}
}

// correct replaces an estimate by what was used.
func (c *call) correct(ch *charge, actual, end int64) {
	if ch.id.kind().Leased() {
		if ch.units > 0 {
			c.withRecord(ch, func(st *stripe, r record) { c.moveSlot(st, r, end, 0) })
		}
		return
	}
	a := c.stripe.mu.leases.algorithm(ch)
	switch {
	case actual < ch.units:
		c.withRecord(ch, func(st *stripe, r record) {
			st.setWords(r, a.GiveBack(st.words(r), c.now+c.toWall(&a), ch.Charge, ch.units-actual))
		})
	case actual > ch.units:
		c.record(ch, &a, actual-ch.units)
	}
}

// withRecord calls f with the record that was charged, if it is there, and the lock
// of its stripe held.
func (c *call) withRecord(ch *charge, f func(*stripe, record)) {
	st, hash, key := c.place(ch.shared)
	if ch.shared {
		c.lockOverflow()
		defer st.mu.Unlock()
	}
	if r := st.find(hash, key, ch.id); r != nil {
		f(st, r)
	}
}

// record charges n units now, in a record of the key's own if there is room for
// one.
func (c *call) record(ch *charge, a *algo.Algorithm, n int64) {
	shared := c.stripe.find(c.hash, c.Key, ch.id) == nil && !c.store.reserve(c.stripe, c.now)
	st, hash, key := c.place(shared)
	if shared {
		c.lockOverflow()
		defer st.mu.Unlock()
	}
	r := st.find(hash, key, ch.id)
	if r == nil {
		st.insert(hash, key, ch.id, a.Words())
		r = st.find(hash, key, ch.id)
	}
	w := st.words(r)
	toWall := c.toWall(a)
	v := a.View(w, c.now+toWall)
	st.setWords(r, a.Take(w, &v, a.Recorded(&v, n)))
	st.stays(r, a.ResetAt(&v)-toWall, c.now)
}

// tombstoneStays is for how long a tombstone stays at least.
const tombstoneStays = 10 * time.Minute

// leaveTombstone is for a lease that was not found: a Reserve that comes later finds
// it, and charges nothing.
func (c *call) leaveTombstone() {
	ls := &c.stripe.mu.leases
	l := ls.insert(halves(c.lease.ID), c.hash, c.now, c.lease.Length)
	ls.settle(l, tombstone, halves(c.lease.Attempt))
	l[endWord] = c.now + max(2*c.lease.Length, tombstoneStays).Microseconds()
}

// keep keeps the lease of a Reserve that passed, or that an unresolved one was
// recorded.
func (c *call) keep(looks []look) {
	if c.op == backend.Record {
		c.leaveTombstone()
		return
	}
	ls := &c.stripe.mu.leases
	w := ls.room(ls.insert(halves(c.lease.ID), c.hash, c.now, c.lease.Length), len(looks))
	for i := range looks {
		a := &c.Policies[i].Algorithm
		ch := charge{id: looks[i].id, units: c.CostOf(i), shared: looks[i].shared, Charge: a.Charged(&looks[i].view)}
		ls.numbers(&ch, a)
		ch.put(w[i*chargeWords:])
	}
}
