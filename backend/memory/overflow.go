package memory

import (
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// The overflow is one more stripe, of records without a key. There is one per policy. It is for
// all new keys of a class while the class may keep no more records, and the store has no idle one.
// So of every policy these keys get one limit together, and none of them costs another
// key its count.
//
// A key leaves the overflow when a call of it finds room: then it begins empty.
// What it took of the overflow stays charged there. So all keys that ever shared
// a count have got at most one limit more than their own.
//
// The overflow's lock is taken after a stripe's, never before, and only while
// the store is full.

// ErrSharedCount is the error of a Reset of a key that was new while the store
// was full. It shares its count with others, who would get a fresh quota. No
// count changed.
var ErrSharedCount = errors.New("headgate: no reset, the memory store is full and the key shares its count")

// lockOverflow locks the overflow, of which the latest instant may be a later one.
func (c *call) lockOverflow() {
	o := &c.store.overflow
	o.mu.Lock()
	//mutant:overflow-instant
	c.now = c.store.clock.notBefore(c.now, &o.mu.latest)
	c.store.clock.notBefore(c.now, &c.stripe.mu.latest)
}

// share finds the records of a call whose key has no room for those that it misses:
// these are the overflow's. It leaves the overflow locked.
func (c *call) share(looks []look) {
	o := &c.store.overflow
	c.lockOverflow()
	o.sweep(c.now, sweepLooks)
	o.mu.records.grow(len(looks))
	c.find(looks) // the search for room may have removed one
	for i := range looks {
		l := &looks[i]
		//mutant:overflow-by-class
		if l.shared = nil; l.record == nil {
			l.shared = c.class(i)
			c.shares(l.shared)
		}
	}
	c.find(looks)
}

// share does so for several keys. Two keys of one call must not share one record, since
// each would find the room that the other takes.
func (ks keys) share() error {
	o := &ks[0].store.overflow
	ks[0].lockOverflow()
	ks.setNow(ks[0].now)
	o.sweep(ks[0].now, sweepLooks)
	shared := map[hash]bool{}
	for i := range ks {
		k := &ks[i]
		k.find(k.looks)
		for j := range k.looks {
			if l := &k.looks[j]; l.record == nil && !l.holds {
				of := k.class(j)
				//mutant:overflow-not-twice
				if shared[of.overflow.of(l.id)] {
					ks.release()
					name := k.Policies[j].Name
					err := fmt.Errorf("the memory store is full, and two keys share the count of policy %q", name)
					return backend.Wrap(backend.ErrUnavailable, err)
				}
				l.shared, shared[of.overflow.of(l.id)] = of, true
				k.shares(of)
			}
		}
	}
	o.mu.records.grow(len(shared))
	for i := range ks {
		ks[i].find(ks[i].looks)
	}
	return nil
}
