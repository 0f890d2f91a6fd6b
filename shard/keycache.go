package shard

import (
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// The cache is bounded: so many sets of so many keys, and so many cells in all of
// them, one per policy of each share. A cell takes up to some 300 bytes. A key that
// leaves costs its next call some requests, no more.
const (
	sets     = 1024
	ways     = 4
	maxCells = 1 << 17 // some 40 MB; 8,192 keys over 16 shares, 128 over 1,024
)

// keyCache is what this process remembers of the spread keys on one store. No
// decision depends on it: it saves requests. It is read on the path of every call,
// so it takes no lock. Rejected: a map under a read lock per stripe, whose count of
// readers moves between all processors for one hot key.
type keyCache struct {
	denials *denial.Cache // of the same store: whole keys' denials
	seed    maphash.Seed  // with a public hash an attacker could choose which keys push a hot one out
	sets    [sets][ways]atomic.Pointer[hotKey]
	cells   atomic.Int64  // of all keys in sets
	hand    atomic.Uint64 // where shrink goes on
}

// find returns what is remembered of the key under these policies. Lists that say the
// same share it: a caller may make a list for each call. Two calls that find nothing at
// once may enter a key twice, and the second entry leaves in time.
func (m *keyCache) find(key string, policies []backend.Policy) *hotKey {
	set := &m.sets[maphash.String(m.seed, key)%sets]
	for i := range set {
		if k := set[i].Load(); k != nil && k.key == key && k.lists(policies) {
			if !k.recent.Load() {
				k.recent.Store(true)
			}
			return k
		}
	}
	k := newHotKey(strings.Clone(key), policies, m.denials) // the caller's may be a small part of a large one
	// It gets a free place, or that of a key that was not asked for since the last one
	// entered, if there is one.
	for n, from := 0, chance.IntN(ways); n <= 2*ways; n++ {
		at := &set[(from+n)%ways]
		if old := at.Load(); old == nil || !old.recent.Swap(false) {
			m.replace(at, k)
			break
		}
	}
	//mutant:known-keys-bounded
	m.shrink(k)
	return k
}

// shrink drops keys that were not asked for since it last passed, but never k,
// until all that are left fit.
func (m *keyCache) shrink(k *hotKey) {
	for n := 0; n < 2*sets*ways && m.cells.Load() > maxCells; n++ {
		i := m.hand.Add(1) % (sets * ways)
		at := &m.sets[i/ways][i%ways]
		//mutant:recent-keys-kept
		if old := at.Load(); old != nil && old != k && !old.recent.Swap(false) {
			m.replace(at, nil)
		}
	}
}

// replace puts k, or nil, in the place of a key, and keeps count of the cells.
func (m *keyCache) replace(at *atomic.Pointer[hotKey], k *hotKey) {
	m.cells.Add(k.cells() - at.Swap(k).cells())
}

// changed drops what is remembered of a key whose counts were removed, under any policies.
// Calls in flight still have it, and their answers are lost with it.
func (m *keyCache) changed(g *backend.Group, c layer.Change) {
	set := &m.sets[maphash.String(m.seed, g.Key)%sets]
	for i := range set {
		if k := set[i].Load(); c == layer.Removed && k != nil && k.key == g.Key {
			m.replace(&set[i], nil)
		}
	}
}
