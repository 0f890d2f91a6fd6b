package memory

import (
	"context"
	"sync"

	"github.com/headgate-go/headgate/backend"
)

// A request of one key is decided in these steps.
//
//   - check refuses what no store could decide. Nothing has been looked at then.
//   - begin hashes the key and each policy's identity, and so finds the stripe.
//   - The clock is read, and the stripe locked.
//   - tick sweeps some idle records, every 64th call of a stripe.
//   - leased does what a Settle or an Extend asks for: these end here.
//   - find finds each policy's record. If one is missing, reserve makes room for it, or
//     the call counts in the overflow.
//   - look views all policies. Nothing is written before all of them have been viewed.
//   - finish charges all policies or none.
//   - After the lock, Decide turns the readings into the answer.
//
// The longest calls are those that search a full store for an idle record. They look at
// up to 16,384 in other stripes, and at all of their own.

var rooms = sync.Pool{New: func() any { return new(room) }}

// room is what a list of several policies needs during a call, for the longest list that
// there may be.
type room struct {
	looks    [backend.MaxPolicies]look
	readings [backend.MaxPolicies]backend.Reading
}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := s.check(ctx, r); err != nil {
		return err
	}
	return s.do(r, d)
}

// do decides a request that was checked.
func (s *Store) do(r *backend.Request, d *backend.Decision) error {
	if len(r.And) > 0 {
		return s.decideAll(r, d)
	}
	n := len(r.Policies)
	if n == 1 {
		var looks [1]look // the most common list needs no pool
		var readings [1]backend.Reading
		return s.decide(r, looks[:], readings[:], d)
	}
	m := rooms.Get().(*room)
	err := s.decide(r, m.looks[:n], m.readings[:n], d)
	clear(m.looks[:n]) // or they would keep tables that were replaced
	rooms.Put(m)
	return err
}

// decide hashes and reads the clock before it takes the lock, and fills the
// decision after it. With two cores on one key, the time under the lock is the
// time per call.
func (s *Store) decide(r *backend.Request, looks []look, readings []backend.Reading, d *backend.Decision) error {
	var c call // a literal would be made elsewhere and copied, which showed in profiles
	c.lease, c.loan = r.Lease, r.Loan
	if err := s.begin(&c, r.Op, &r.Group, looks); err != nil {
		return err
	}
	err := c.locked(s.clock.beforeLock(), looks, readings)
	c.tellFull()
	if err != nil {
		return err
	}
	if r.Run > 0 { // the costs that were asked for
		c.Costs = r.Costs
	}
	settles := r.Op.Held()
	if !settles || c.looks {
		c.Group.Decide(c.now, readings, d)
	}
	if settles {
		d.Allowed = true
	}
	return nil
}

// locked decides the call with its stripe locked. before is the default clock's reading
// ahead of the lock.
func (c *call) locked(before int64, looks []look, readings []backend.Reading) error {
	mu := &c.stripe.mu
	mu.Lock()
	defer mu.Unlock() // Options.Now may panic
	//mutant:newest-instant
	c.now = c.store.clock.underLock(before, &mu.latest)
	c.store.tick(c.stripe, c.now)
	if c.lease != nil {
		return c.ofLease(looks, readings)
	}
	return c.counted(looks, readings)
}

// counted decides a call by the records of its policies.
func (c *call) counted(looks []look, readings []backend.Reading) error {
	if !c.reserve(looks) {
		return c.sharing(looks, readings)
	}
	return c.decided(looks, readings)
}

// sharing decides a call whose key has no room for the records that it misses.
func (c *call) sharing(looks []look, readings []backend.Reading) error {
	c.share(looks)
	defer c.store.overflow.mu.Unlock()
	return c.decided(looks, readings)
}

// decided decides with the records that were found.
func (c *call) decided(looks []look, readings []backend.Reading) (err error) {
	switch c.op {
	case backend.Borrow:
		return c.borrow(looks, readings)
	case backend.Reset:
		err = c.reset(looks)
	}
	take := c.look(looks)
	if c.op.Returns() {
		c.giveOut(looks)
	}
	if c.op != backend.Take {
		take = c.charges(looks, take)
	} else if c.Run > 0 {
		c.run(looks)
	}
	c.finish(take, looks, readings)
	return err
}

// reset removes the key's own records. It changes nothing where the key counts
// in the overflow.
//
// All records are looked at before the first is removed: an error must leave all counts as
// they were. Leases of the key stay and are marked, since what they charged was removed
// with the counts.
func (c *call) reset(looks []look) error {
	for i := range looks {
		if l, a := &looks[i], &c.Policies[i].Algorithm; l.shared != nil && l.record != nil {
			if c.view(l, a); a.Shown(&l.view) > 0 {
				return ErrSharedCount
			}
		}
	}
	for i := range looks {
		if l := &looks[i]; l.shared == nil {
			if l.record != nil {
				c.stripe.remove(c.stripe.mu.records.at(c.hash.of(l.id)))
				c.store.removed(1)
			}
			l.record, l.lent, l.words = nil, nil, none[:c.Policies[i].Algorithm.Words()]
		}
	}
	c.stripe.mu.leases.reset(c.hash)
	return nil
}
