package trace

import (
	"encoding/binary"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// lease is what the model keeps of a reservation. It never leaves: one whose time is
// over counts as absent. It would count again if the clock went back, as in the
// script under a virtual clock.
type lease struct {
	open       bool
	end        int64
	length     int64 // µs
	slotEnd    int64 // of its slots of InFlight policies
	generation int64
	attempt    backend.LeaseID // that settled it
	charges    []charge        // never written
}

type leaseOf struct {
	place
	id backend.LeaseID
}

// ends are the resets of a key: leases of an earlier generation have ended. After
// the horizon, in seconds, no lease of the key can be held, and a reset ends none.
type ends struct{ generation, horizon int64 }

// charge is what a lease keeps of one policy.
type charge struct {
	id        state
	algorithm algo.Algorithm
	units     int64
	begun     int64 // of its log, then
	spared    bool  // a shadow without room, which no settle charges
	rule.Charge
}

func slotOf(id backend.LeaseID) int64 { return int64(binary.BigEndian.Uint64(id[8:])) }

func (c *call) leaseOf() leaseOf { return leaseOf{c.at, c.Lease.ID} }

// lease returns the request's lease. One whose end is further ahead than its length
// ends a length from now.
func (c *call) lease() (l lease, found bool) {
	l, found = c.mu.leases[c.leaseOf()]
	l.end = min(l.end, c.now+l.length)
	return l, found && c.now < l.end+l.length
}

// keep keeps the lease of a Reserve that passed, or the tombstone of a settlement that
// was recorded.
func (c *call) keep(charges []charge) {
	length := c.Lease.Length.Microseconds()
	end := c.now + length
	c.mu.leases[c.leaseOf()] = lease{open: true, end: end, length: length, slotEnd: end,
		generation: c.mu.ends[c.at].generation, charges: charges}
	c.last(length)
}

// last moves the horizon of the key's leases, if one of this length needs that.
func (c *call) last(length int64) {
	e := c.mu.ends[c.at]
	if e.horizon*1_000_000 < c.now+2*length {
		e.horizon = (c.now + 3*length + 999_999) / 1_000_000
		c.mu.ends[c.at] = e
	}
}

// settle settles or extends the request's lease.
func (c *call) settle() error {
	l, found := c.lease()
	switch {
	case !found && c.Op == backend.Settle && c.Lease.Unresolved:
		return c.recordInstead()
	case !found:
		return backend.ErrNotHeld
	case !l.open && c.Op == backend.Settle && l.attempt == c.Lease.Attempt && l.attempt != backend.LeaseID{}:
		return nil
	case !l.open:
		return backend.ErrNotHeld
	case l.generation != c.mu.ends[c.at].generation && c.Op == backend.Extend:
		return backend.ErrNotHeld
	case l.generation != c.mu.ends[c.at].generation:
		c.moveSlots(&l, 0)
		if c.Lease.Unresolved {
			lease := *c.Lease
			lease.Attempt = backend.LeaseID{} // which no Settle repeats
			c.Lease = &lease
			c.leave()
		}
		return backend.ErrNotHeld
	case c.Op == backend.Extend:
		return c.extend(l)
	}
	c.moveSlots(&l, 0)
	for i := range l.charges {
		actual := int64(0)
		if c.Lease.Actual != nil {
			actual = c.Lease.ActualOf(c.Policies, i)
		}
		c.correct(&l.charges[i], actual)
	}
	c.leave()
	return nil
}

// leave keeps what is left of a settled lease: for one length, and of an unresolved one
// for twice its length, ten minutes at least.
func (c *call) leave() {
	end, length := c.now, c.Lease.Length.Microseconds()
	if c.Lease.Unresolved {
		length = max(length, 5*time.Minute.Microseconds())
		end += length
	}
	c.mu.leases[c.leaseOf()] = lease{end: end, length: length, attempt: c.Lease.Attempt}
}

func (c *call) extend(l lease) error {
	if c.now >= l.end {
		return backend.ErrLeaseEnded
	}
	l.length = c.Lease.Length.Microseconds()
	l.end = c.now + l.length
	c.moveSlots(&l, l.end)
	c.mu.leases[c.leaseOf()] = l
	c.last(l.length)
	return nil
}

// moveSlots frees the lease's slots, or holds them until another end.
func (c *call) moveSlots(l *lease, to int64) {
	id := slotOf(c.Lease.ID)
	for i := range l.charges {
		ch := &l.charges[i]
		if a := &ch.algorithm; !ch.spared && a.Kind().Leased() && ch.units > 0 {
			w := c.words(ch.id, a)
			if a.Release(w, l.slotEnd, id) && to > 0 {
				var v rule.View // an Extend drops no ended slots, as in the script
				w = a.Hold(w, &v, to, id)
			}
			c.mu.words[ch.id] = w
		}
	}
	l.slotEnd = to
}

// correct replaces an estimate by what was used.
func (c *call) correct(ch *charge, actual int64) {
	a := &ch.algorithm
	w := c.words(ch.id, a)
	switch {
	case ch.spared, a.Kind().Leased():
		return
	case actual < ch.units && ch.begun != c.mu.begun[ch.id]:
		return // its log was dropped, and the clock went back to its instant
	case actual < ch.units:
		w = a.GiveBack(w, c.now, ch.Charge, ch.units-actual)
	case actual > ch.units:
		v := a.View(w, c.now)
		c.begin(ch.id, a, &v)
		w = a.Take(w, &v, a.Recorded(&v, actual-ch.units))
	}
	c.mu.words[ch.id] = w
}

// recordInstead records what was used of an unresolved lease that was not found, and
// leaves a tombstone.
func (c *call) recordInstead() error {
	c.Op, c.Costs = backend.Record, make([]int64, len(c.Policies))
	for i := range c.Costs {
		if !c.Policies[i].Algorithm.Kind().Leased() {
			c.Costs[i] = c.Lease.ActualOf(c.Policies, i)
		}
	}
	c.decide()
	c.leave()
	return nil
}
