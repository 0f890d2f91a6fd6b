package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// look is what a decision holds of one policy.
type look struct {
	id     identity
	shared bool    // the policy's record is the overflow's, not the key's own
	record record  // nil: none yet
	words  []int64 // the algorithm's words of the record, or none
	view   algo.View
	toWall int64 // of a policy that follows the wall clock, what its instants are ahead of the store's
}

// fewPolicies need no room from the heap.
const fewPolicies = 4

var rooms = sync.Pool{New: func() any { return new(room) }}

type room struct {
	looks    [backend.MaxPolicies]look
	readings [backend.MaxPolicies]backend.Reading
}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := s.check(ctx, r); err != nil {
		return err
	}
	if len(r.And) > 0 {
		return s.decideAll(r, d)
	}
	n := len(r.Policies)
	if n == 1 {
		var looks [1]look // clearing fewPolicies takes longer than a look
		var readings [1]backend.Reading
		return s.decide(r, looks[:], readings[:], d)
	}
	if n <= fewPolicies {
		var looks [fewPolicies]look
		var readings [fewPolicies]backend.Reading
		return s.decide(r, looks[:n], readings[:n], d)
	}
	m := rooms.Get().(*room)
	err := s.decide(r, m.looks[:n], m.readings[:n], d)
	clear(m.looks[:n]) // or they would keep tables that were replaced
	rooms.Put(m)
	return err
}

func (s *Store) check(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Closed.Load() { // mutant: memory-closed
		return backend.ErrClosed
	}
	if err := r.Check(ctx, capabilities); err != nil { // mutant: memory-context
		return err
	}
	for i := range 1 + len(r.And) {
		policies := r.GroupAt(i).Policies
		if n := len(policies); n > backend.MaxPolicies {
			return &backend.InvalidError{What: "policies", Value: n, Want: fmt.Sprintf("at most %d", backend.MaxPolicies)}
		}
		if r.Op == backend.Reset || r.Lease != nil { // whose algorithms Check may not have looked at
			if err := backend.CheckPolicies(policies); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash hashes the key and the sub-key: all sub-keys of a hot key would else lie
// in one stripe.
func (s *Store) hash(g *backend.Group) uint64 {
	h := maphash.String(s.seed, g.Key)
	if g.Sub != "" {
		h = bits.RotateLeft64(h, 23) ^ maphash.String(s.seed, g.Sub)
	}
	return h
}

// call is one request under the lock of its key's stripe. It looks at every
// policy before it charges any. (The looks are no field: they would escape.)
type call struct {
	*backend.Group
	op       backend.Op
	lease    *backend.Lease
	store    *Store
	stripe   *stripe
	hash     uint64
	now      int64
	reserved int // records that count as kept and are not made yet
}

// decide hashes and reads the clock before it takes the lock, and fills the
// decision after it: with two cores on one key, the time under the lock is the
// time per call.
func (s *Store) decide(r *backend.Request, looks []look, readings []backend.Reading, d *backend.Decision) error {
	var c call // a literal would be made elsewhere and copied, which showed in profiles
	c.lease = r.Lease
	if err := s.begin(&c, r.Op, &r.Group, looks); err != nil {
		return err
	}
	if err := c.locked(s.clock.beforeLock(), looks, readings); err != nil {
		return err
	}
	if r.Op == backend.Settle || r.Op == backend.Extend {
		d.Allowed = true
		return nil
	}
	c.Group.Decide(c.op, c.now, readings, d)
	return nil
}

// begin makes the zero c a call of the group, with a look for each policy.
func (s *Store) begin(c *call, op backend.Op, g *backend.Group, looks []look) error {
	c.Group, c.op, c.store, c.hash = g, op, s, s.hash(g)
	c.stripe = &s.stripes[c.stripeAt()]
	for i := range looks {
		looks[i].id = s.identityOf(&g.Policies[i], g.Sub)
		for j := range looks[:i] {
			if looks[j].id == looks[i].id { // of a request that no limiter made
				return &backend.InvalidError{What: "policy name", Value: g.Policies[i].Name, Want: "a name of its own, it is listed twice"}
			}
		}
	}
	return nil
}

// stripeAt returns the index of the key's stripe.
func (c *call) stripeAt() int { return int(c.hash >> c.store.shift) }

func (c *call) locked(before int64, looks []look, readings []backend.Reading) error {
	mu := &c.stripe.mu
	mu.Lock()
	defer mu.Unlock()                                   // Options.Now may panic
	c.now = c.store.clock.underLock(before, &mu.latest) // mutant: newest-instant
	c.store.tick(c.stripe, c.now)
	if c.lease != nil {
		if done, err := c.leased(); done || err != nil {
			return err
		}
	}
	for c.reserved < c.find(looks) {
		if !c.store.reserve(c.stripe, c.now) {
			return c.sharing(looks, readings)
		}
		c.reserved++
	}
	return c.run(looks, readings)
}

// none are the words of a key without a record. Looking never writes.
var none [algo.MaxBuckets + 4]int64

// find finds the records of all policies and returns how many the key has none
// of.
func (c *call) find(looks []look) (missing int) {
	for i := range looks {
		l := &looks[i]
		st, hash, key := c.place(l.shared)
		if l.record = st.find(hash, key, l.id); l.record != nil {
			l.words = st.words(l.record)
			continue
		}
		l.words = none[:c.Policies[i].Algorithm.Words()]
		missing++
	}
	return missing
}

// place returns where a policy's record is, and what it is found by beside its
// identity: in the overflow all keys have one record.
func (c *call) place(shared bool) (st *stripe, hash uint64, key string) {
	if shared {
		return &c.store.overflow, 0, ""
	}
	return c.stripe, c.hash, c.Key
}

// run decides with the records that were found.
func (c *call) run(looks []look, readings []backend.Reading) (err error) {
	if c.op == backend.Reset {
		err = c.reset(looks)
	}
	take := c.look(looks)
	if c.op != backend.Take {
		take = c.charges(looks, take)
	}
	if take {
		c.insert(looks)
	}
	c.finish(take, looks, readings)
	return err
}

// finish charges all policies or none, and keeps the lease of what it charged.
func (c *call) finish(take bool, looks []look, readings []backend.Reading) {
	for i := range looks {
		if take && c.CostOf(i) > 0 {
			readings[i] = c.take(&looks[i], i)
		} else {
			readings[i] = c.read(&looks[i], i)
		}
	}
	c.store.removed(c.reserved)
	if take && c.lease != nil {
		c.keep(looks)
	}
}

// look views every policy and reports whether all have room.
func (c *call) look(looks []look) (fits bool) {
	fits = true
	for i := range looks {
		a, l := &c.Policies[i].Algorithm, &looks[i]
		c.view(l, a)
		fits = a.Fits(&l.view, c.CostOf(i)) && fits
	}
	return fits
}

// view views one policy, by the clock that it follows.
func (c *call) view(l *look, a *algo.Algorithm) {
	l.toWall = c.toWall(a)
	a.Look(&l.view, l.words, c.now+l.toWall)
}

// toWall returns what the clock that an algorithm follows is ahead of now.
func (c *call) toWall(a *algo.Algorithm) int64 {
	if !a.FollowsWallClock() {
		return 0
	}
	return c.store.clock.toWall(c.now)
}

// insert makes the records that are missing, where something is to be charged.
// Others of the stripe may move, so it finds all again.
func (c *call) insert(looks []look) {
	missing := 0
	for i := range looks {
		l := &looks[i]
		if l.record != nil || c.CostOf(i) == 0 {
			continue
		}
		missing++
		st, hash, key := c.place(l.shared)
		st.insert(hash, key, l.id, c.Policies[i].Algorithm.Words())
		if !l.shared {
			c.reserved--
		}
	}
	if missing > 0 {
		c.find(looks)
	}
}

// take charges one policy.
func (c *call) take(l *look, i int) backend.Reading {
	a := &c.Policies[i].Algorithm
	st, _, _ := c.place(l.shared)
	if c.op == backend.Take {
		st.setWords(l.record, a.Take(l.words, &l.view, c.CostOf(i)))
	} else {
		st.setWords(l.record, c.charge(l, i))
	}
	r := l.reading(a)
	st.stays(l.record, r.ResetAt, c.now)
	return r
}

// read returns a policy's state where nothing is charged.
func (c *call) read(l *look, i int) backend.Reading {
	a := &c.Policies[i].Algorithm
	r := l.reading(a)
	if c.op != backend.Peek && c.op != backend.Reset && l.record != nil { // mutant: denied-overflow-stays
		l.record.stay(r.ResetAt, c.now) // a count that denies stays while it does, by this call's numbers
	}
	if c.op != backend.Reset && c.op != backend.Record && !a.Fits(&l.view, c.CostOf(i)) {
		r.RetryAt = a.RetryAt(l.words, &l.view, c.CostOf(i)) - l.toWall
	}
	return r
}

// reading returns what the view amounts to: the instant of a charge as it is
// recorded, the others by the store's clock.
func (l *look) reading(a *algo.Algorithm) backend.Reading {
	r := backend.Reading{At: l.view.At, Used: l.view.Used, ResetAt: a.ResetAt(&l.view)}
	if r.ResetAt > 0 {
		r.ResetAt -= l.toWall
	}
	return r
}

// reset removes the key's own records. It changes nothing where the key counts
// in the overflow.
func (c *call) reset(looks []look) error {
	for i := range looks {
		if l := &looks[i]; l.shared && l.record != nil {
			if c.view(l, &c.Policies[i].Algorithm); l.view.Used > 0 {
				return ErrSharedCount
			}
		}
	}
	for i := range looks {
		if l := &looks[i]; !l.shared {
			if t, slot := c.stripe.locate(c.hash, c.Key, l.id); t != nil {
				c.stripe.remove(t, slot)
				c.store.removed(1)
			}
			l.record, l.words = nil, none[:len(l.words)]
		}
	}
	c.stripe.mu.leases.reset(c.hash, c.now)
	return nil
}
