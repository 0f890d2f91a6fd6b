package memory

import "errors"

// The overflow is one more stripe, of records without a key: one per policy
// for all keys that are new while the store is full and none of its records
// is idle. So of every policy these keys get one limit together, and none of
// them costs another key its count.
//
// A key leaves the overflow when a call of it finds room: then it begins empty.
// What it took of the overflow stays charged there. So all keys that ever shared
// a count have got at most one limit more than their own.
//
// The overflow's lock is taken after a stripe's, never before, and only while
// the store is full.

// ErrSharedCount is the error of a Reset of a key that was new while the store
// was full: it shares its count with others, who would get a fresh quota. No
// count changed.
var ErrSharedCount = errors.New("headgate: no reset, the memory store is full and the key shares its count")

// lockOverflow locks the overflow, of which the latest instant may be a later one.
func (c *call) lockOverflow() {
	o := &c.store.overflow
	o.mu.Lock()
	c.now = c.store.clock.notBefore(c.now, &o.mu.latest) // mutant: overflow-instant
	c.store.clock.notBefore(c.now, &c.stripe.mu.latest)
}
