package shard

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/slot"
)

// The memory is bounded: so many sets of so many keys, and so many cells in all of
// them, one per policy of each share. A cell takes up to some 300 bytes. A key that
// leaves costs its next call some requests, no more.
const (
	sets     = 1024
	ways     = 4
	maxCells = 1 << 17 // some 40 MB; 8,192 keys over 16 shares, 128 over 1,024
	maxName  = 1024    // bytes; a longer key is remembered by its hash
)

// memory is what this process remembers of the spread keys on one store. No
// decision depends on it: it saves requests. It is read on the path of every call,
// so it takes no lock. Rejected: a map under a read lock per stripe, whose count of
// readers moves between all processors for one hot key.
type memory struct {
	denials *denial.Cache // of the same store: whole keys' denials
	seed    maphash.Seed  // with a public hash an attacker could choose which keys push a hot one out
	sets    [sets][ways]atomic.Pointer[hotKey]
	cells   atomic.Int64  // of all keys in sets
	hand    atomic.Uint64 // where shrink goes on
}

func newMemory(denials *denial.Cache) *memory {
	return &memory{denials: denials, seed: maphash.MakeSeed()}
}

func (m *memory) set(name string) *[ways]atomic.Pointer[hotKey] {
	return &m.sets[maphash.String(m.seed, name)%sets]
}

// short returns the name by which a key is remembered.
func short(key string) (name string, hashed bool) {
	if len(key) <= maxName {
		return key, false
	}
	return slot.Tag(key, ""), true
}

// find returns what is remembered of the key under these policies.
func (m *memory) find(key string, policies []backend.Policy) *hotKey {
	name, hashed := short(key)
	set := m.set(name)
	for i := range set {
		if k := set[i].Load(); k != nil && k.name == name && k.hashed == hashed && k.lists(policies) {
			if !k.recent.Load() {
				k.recent.Store(true)
			}
			return k
		}
	}
	k := newHotKey(key, policies)
	k.name, k.hashed = strings.Clone(name), hashed // the caller's may be a small part of a large one
	m.enter(set, k)
	m.shrink(k) // mutant: known-keys-bounded
	return k
}

// enter puts k in a free place, or in that of a key that was not asked for since
// the last one entered.
func (m *memory) enter(set *[ways]atomic.Pointer[hotKey], k *hotKey) {
	for i := range set {
		if m.swap(&set[i], nil, k) {
			return
		}
	}
	from := rand.IntN(ways)
	for n := range 2 * ways {
		at := &set[(from+n)%ways]
		if old := at.Load(); old == nil || !old.recent.Swap(false) {
			if m.swap(at, old, k) {
				return
			}
		}
	}
}

// shrink drops keys that were not asked for since it last passed, but never k,
// until all that are left fit.
func (m *memory) shrink(k *hotKey) {
	for n := 0; n < 2*sets*ways && m.cells.Load() > maxCells; n++ {
		i := m.hand.Add(1) % (sets * ways)
		at := &m.sets[i/ways][i%ways]
		if old := at.Load(); old != nil && old != k && !old.recent.Swap(false) { // mutant: recent-keys-kept
			m.swap(at, old, nil)
		}
	}
}

func (m *memory) swap(at *atomic.Pointer[hotKey], old, k *hotKey) bool {
	done := at.CompareAndSwap(old, k)
	if done {
		m.cells.Add(k.cells() - old.cells())
	}
	return done
}

// forget drops what is remembered of the key, under any policies.
func (m *memory) forget(key string) {
	name, hashed := short(key)
	set := m.set(name)
	for i := range set {
		if k := set[i].Load(); k != nil && k.name == name && k.hashed == hashed {
			m.swap(&set[i], k, nil)
		}
	}
}
