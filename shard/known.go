package shard

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/internal/slot"
)

// What is known is bounded: so many sets of so many entries, and so many cells
// in all of them, one for each policy of each share. A cell of a spent share
// takes some 200 bytes, and 110 in its plan. An entry that leaves costs its key
// one sum.
const (
	sets      = 1024
	ways      = 4
	cellsMost = 1 << 17 // some 40 to 55 MB; 8,192 keys over 16, 128 over 1,024
	keyMost   = 1024    // bytes; a longer key is known by its hash
)

// known is what this process knows of the keys on one store. Nothing in it is
// needed to be right, all of it is to ask less. It is read on the path of every
// call, so there is no lock: what lost is a map under a read lock a stripe,
// whose count of readers all processors pass around for one hot key.
type known struct {
	seed  maphash.Seed // with a public hash an attacker could choose which keys push a hot one out
	begin time.Time
	clock func() time.Time     // nil: the monotonic one
	last  atomic.Pointer[plan] // that was asked for last
	plans [plansMost]atomic.Pointer[plan]
	sets  [sets][ways]atomic.Pointer[entry]
	cells atomic.Int64  // of all entries in sets
	hand  atomic.Uint64 // where shrink goes on
}

func newKnown(clock func() time.Time) *known {
	m := &known{seed: maphash.MakeSeed(), begin: time.Now(), clock: clock}
	if m.clock != nil {
		m.begin = m.clock()
	}
	return m
}

// now is the time since known was made, by the store's clock.
func (m *known) now() time.Duration {
	if m.clock == nil {
		return time.Since(m.begin)
	}
	return m.clock().Sub(m.begin)
}

func (m *known) set(key string) *[ways]atomic.Pointer[entry] {
	return &m.sets[maphash.String(m.seed, key)%sets]
}

// short returns what a key is known by.
func short(key string) (name string, hashed bool) {
	if len(key) <= keyMost {
		return key, false
	}
	return slot.Tag(key, ""), true
}

// find returns what is known of the key by these policies.
func (m *known) find(key string, p *plan) *entry {
	name, hashed := short(key)
	set := m.set(name)
	for i := range set {
		if e := set[i].Load(); e != nil && (e.plan == p || e.plan.says(p.policies)) && e.key == name && e.hashed == hashed {
			if !e.recent.Load() {
				e.recent.Store(true)
			}
			return e
		}
	}
	e := newEntry(key, p)
	e.key, e.hashed = strings.Clone(name), hashed // the caller's may be a small part of a large one
	m.enter(set, e)
	m.shrink(e) // mutant: known-keys-bounded
	return e
}

// enter puts e in a free place, or in that of one that was not asked for since
// the last that came.
func (m *known) enter(set *[ways]atomic.Pointer[entry], e *entry) {
	for i := range set {
		if m.swap(&set[i], nil, e) {
			return
		}
	}
	from := rand.IntN(ways)
	for n := range 2 * ways {
		at := &set[(from+n)%ways]
		old := at.Load()
		if old == nil || !old.recent.Swap(false) {
			if m.swap(at, old, e) {
				return
			}
		}
	}
}

// shrink drops entries that were not asked for since it last passed, but never
// e, until all that are left fit.
func (m *known) shrink(e *entry) {
	for n := 0; n < 2*sets*ways && m.cells.Load() > cellsMost; n++ {
		i := m.hand.Add(1) % (sets * ways)
		at := &m.sets[i/ways][i%ways]
		if old := at.Load(); old != nil && old != e && !old.recent.Swap(false) { // mutant: recent-keys-kept
			m.swap(at, old, nil)
		}
	}
}

func (m *known) swap(at *atomic.Pointer[entry], old, e *entry) bool {
	done := at.CompareAndSwap(old, e)
	if done {
		m.cells.Add(e.cells() - old.cells())
	}
	return done
}

// forget drops what is known of the key, by whichever policies.
func (m *known) forget(key string) {
	name, hashed := short(key)
	set := m.set(name)
	for i := range set {
		if e := set[i].Load(); e != nil && e.key == name && e.hashed == hashed {
			m.swap(&set[i], e, nil)
		}
	}
}
