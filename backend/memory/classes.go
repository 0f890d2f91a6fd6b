package memory

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// A class is what policies name by Policy.Class: the counts of one purpose, such as a limit per
// address. Where a store has classes, each may keep at most as many counts as are free. So a
// flood of keys of one class takes half of the store, and floods of two a third each. A class
// that may keep no more has an overflow of its own.
//
// Policies without a class are one, too. It has no bound in a store without other classes.
type class struct {
	name     string
	index    uint16       // by which the tables have it
	overflow hash         // whose counts its keys share
	kept     atomic.Int64 // counts, and free ones reserved for more
	shared   atomic.Int64 // decisions by a shared count
	next     atomic.Int64 // the instant from which on an event is due
}

// classes are those of a store. None is ever removed.
type classes struct {
	named sync.Map // name → *class
	mu    sync.Mutex
	list  atomic.Pointer[[]*class] // by index; the first is that of policies without one
}

// maxClasses bounds the classes. What names more of them shares the last one.
const maxClasses = math.MaxUint16

// fullEvery is the time between two events of a class.
const fullEvery = time.Minute

func newClasses() *classes {
	c := &classes{}
	c.list.Store(&[]*class{{}})
	return c
}

// of returns the class of a name.
func (cs *classes) of(name string, key *secret) *class {
	if name == "" {
		return (*cs.list.Load())[0]
	}
	if c, ok := cs.named.Load(name); ok {
		return c.(*class)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c, ok := cs.named.Load(name); ok {
		return c.(*class)
	}
	list := *cs.list.Load()
	//mutant:classes-bounded
	if len(list) > maxClasses {
		return list[maxClasses]
	}
	c := &class{name: name, index: uint16(len(list)), overflow: key.overflowOf(name)}
	list = append(list, c) // readers look at no more than their own length
	cs.list.Store(&list)
	cs.named.Store(name, c)
	return c
}

// overflowOf returns the hash under which the keys of a class share their counts.
func (k *secret) overflowOf(name string) hash { return max(hash(k.hash(name)), 1) }

// at returns the class of an index.
func (cs *classes) at(index uint16) *class { return (*cs.list.Load())[index] }

// keep counts one more of a class, if it had no more counts than there were free ones. free is
// the number of those left.
func (cs *classes) keep(c *class, free int64) bool {
	//mutant:class-takes-half
	if n := c.kept.Add(1); n > free+1 && len(*cs.list.Load()) > 1 {
		c.kept.Add(-1)
		return false
	}
	return true
}

// Stats are numbers of a Store.
type Stats struct {
	Counts, MaxCounts int // counts that are kept, as Len returns them, and how many may be
	// Shared is the number of decisions by a count that keys share, since there was no free one.
	Shared int64
	// Classes are those whose keys have shared a count.
	Classes []ClassStats
	File    FileStats // of the store's file, zero without one
}

// ClassStats are numbers of a class of keys; see Policy.Class.
type ClassStats struct {
	Class  string
	Counts int
	Shared int64
}

// Stats returns how full the store is. That of a nil or zero Store is zero.
func (s *Store) Stats() (st Stats) {
	if s.usable() != nil {
		return st
	}
	st.Counts, st.MaxCounts = s.Len(), int(s.maxKeys)
	if s.file != nil {
		st.File = s.file.stats()
	}
	for _, c := range *s.classes.list.Load() {
		if n := c.shared.Load(); n > 0 {
			st.Shared += n
			st.Classes = append(st.Classes, ClassStats{Class: c.name, Counts: int(c.kept.Load()), Shared: n})
		}
	}
	return st
}

// class returns the class of a policy's counts.
func (c *call) class(i int) *class {
	return c.store.classes.of(c.Policies[i].Class, &c.store.secrets[ofPolicies])
}

// shares notes that keys of a class share a count, and that an event of it is due.
func (c *call) shares(cl *class) {
	cl.shared.Add(1)
	//mutant:full-event-once
	if next := cl.next.Load(); c.now >= next && cl.next.CompareAndSwap(next, c.now+fullEvery.Microseconds()) {
		c.full = cl
	}
}

// tellFull sends the event that is due. No lock is held.
func (c *call) tellFull() {
	if c.full != nil {
		s := c.store
		s.shared.Full(backend.Full{Class: c.full.name, Counts: s.Len(), MaxCounts: int(s.maxKeys)})
	}
}
