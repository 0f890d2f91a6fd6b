package shard

import (
	"strings"
	"sync"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// maxCells bounds the cache. A cell is a policy of a share and takes up to some 300 bytes, so all
// of them take some 40 MB. That is 8,192 keys over 16 shares, or 128 over 1,024.
const maxCells = 1 << 17

// maxLists bounds the lists of one key in a generation. A call looks at each. A caller may make
// a list for each call.
const maxLists = 8

// keyCache is what this process remembers of the spread keys on one store. No decision
// depends on it: it saves requests. A key that leaves costs its next call a sum.
//
// It has two generations. Keys enter the young one, from the old one too. When the young one has
// half of the cells, it becomes the old one. The keys that were not called since the last change
// leave.
type keyCache struct {
	denials *denial.Cache // of the same store: whole keys' denials
	mu      struct {
		sync.RWMutex
		young, old map[string][]*hotKey // by key: one for each list of policies
		cells      int                  // of young
	}
}

// find returns what is remembered of the group's key under its list. Lists that are equal
// share it.
func (m *keyCache) find(g *backend.Group) *hotKey {
	m.mu.RLock()
	k := listed(m.mu.young[g.Key], g)
	m.mu.RUnlock()
	if k == nil {
		k = m.enter(g)
	}
	return k
}

// enter puts the key into the young generation, and returns it.
func (m *keyCache) enter(g *backend.Group) *hotKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := listed(m.mu.young[g.Key], g); k != nil { // another call was first
		return k
	}
	//mutant:recent-keys-kept
	k := listed(m.mu.old[g.Key], g)
	if k == nil {
		k = newHotKey(strings.Clone(g.Key), g.Policies, g.Shards, m.denials) // the caller's may be a small part of a large one
	}
	m.mu.cells += k.cells()
	//mutant:known-keys-bounded
	if m.mu.cells > maxCells/2 {
		m.mu.old, m.mu.young, m.mu.cells = m.mu.young, nil, k.cells()
	}
	if m.mu.young == nil {
		m.mu.young = map[string][]*hotKey{}
	}
	all := m.mu.young[k.key]
	//mutant:few-lists-of-a-key
	if len(all) == maxLists {
		m.mu.cells -= all[0].cells()
		all = all[1:]
	}
	m.mu.young[k.key] = append(all, k)
	return k
}

// changed drops what is remembered of a key whose counts were removed, under any policies.
// Calls in flight still have it, and their answers are lost with it.
func (m *keyCache) changed(n layer.Notice) {
	if n.Change != layer.Removed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.mu.young[n.Group.Key] {
		m.mu.cells -= k.cells()
	}
	delete(m.mu.young, n.Group.Key)
	delete(m.mu.old, n.Group.Key)
}
