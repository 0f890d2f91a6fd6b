package memory

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so a set of them is decided all or nothing.
type stripe struct {
	mu guarded
}

// guarded is what the lock beside it guards. The first cache line is all that
// a hit reads of it, and is seldom written.
type guarded struct {
	shape atomic.Pointer[shape] // what of the rest is read without the lock; replaced under it
	_     [56]byte

	sync.Mutex
	away   atomic.Int64 // how long the last hit that met another at a record stays away; see stay
	back   atomic.Int64 // and until when
	latest int64        // the last decision's instant under the lock, by the store's own clock
	calls  uint
	hand   struct{ seg, off int } // where the sweep goes on

	index index
	words [][]int64 // the segments; never written, but replaced
	names []id      // by their numbers; never written, but replaced
	under []int     // how many records have each
	last  int       // the segment where new records go

	segs  []segment
	many  [][]int64 // words of the kinds that keep many
	known map[id]uint32
	spare struct{ names, many []uint32 } // numbers that are free
}

// id is what a record is named by beside its key, in records under a number:
// nearly always there is one a policy. Two algorithms under one policy name do
// not read each other's words.
type id struct {
	policy, sub string
	kind        algo.Kind
}

func idOf(g *backend.Group, i int) id {
	p := &g.Policies[i]
	return id{p.Name, g.Sub, p.Algorithm.Kind()}
}

// find returns where a policy has its record of a key.
func (m *guarded) find(tag uint32, key, sub string, p *backend.Policy) (place, bool) {
	x := &m.index
	if len(x.slots) == 0 {
		return 0, false
	}
	for j := x.home(tag); ; j = x.next(j) {
		e := x.slots[j].Load()
		if e == 0 {
			return 0, false
		}
		if tagOf(e) == tag && m.is(placeOf(e), key, sub, p) {
			return placeOf(e), true
		}
	}
}

func (m *guarded) is(at place, key, sub string, p *backend.Policy) bool {
	w := m.at(at)
	if lenIn(atomic.LoadInt64(&w[tagWord])) != len(key) {
		return false
	}
	n, k := &m.names[nameIn(atomic.LoadInt64(&w[untilWord]))], p.Algorithm.Kind()
	return n.kind == k && n.policy == p.Name && n.sub == sub && isKey(w[header+wordsOf(k):], key)
}

// counts returns the words of a record that is owned, to be read and written
// in place.
func (m *guarded) counts(w []int64, k algo.Kind) []int64 {
	if keepsMany(k) {
		return m.many[w[header]]
	}
	return w[header : header+wordsOf(k)]
}

// keep enters a record for the group's i-th policy. It is owned.
func (m *guarded) keep(tag uint32, g *backend.Group, i int, words []int64, resetAt int64) place {
	name := idOf(g, i)
	n := wordsOf(name.kind)
	at := m.room(header + n + keyWords(len(g.Key)))
	w := m.at(at)
	w[tagWord] = head(tag, g.Key) | mine
	w[untilWord] = until(resetAt, m.number(name))
	if keepsMany(name.kind) {
		w[header] = m.aside(words)
	} else {
		copy(w[header:header+n], words)
	}
	putKey(w[header+n:], g.Key) // a copy: the caller's string may be a small part of a large one
	if m.index.full() {
		m.resize(len(m.index.slots) * 3 / 2)
	}
	m.index.add(tag, at)
	return at
}

// aside gives words memory of their own.
func (m *guarded) aside(words []int64) int64 {
	if n := len(m.spare.many); n > 0 {
		i := m.spare.many[n-1]
		m.spare.many = m.spare.many[:n-1]
		m.many[i] = words
		return int64(i)
	}
	m.many = append(m.many, words)
	return int64(len(m.many) - 1)
}

func (m *guarded) resize(n int) {
	m.index.resize(n)
	m.publish()
}

// drop forgets a record that is owned.
func (m *guarded) drop(at place) {
	w := m.at(at)
	number := nameIn(w[untilWord])
	if keepsMany(m.names[number].kind) {
		m.many[w[header]] = nil
		m.spare.many = append(m.spare.many, uint32(w[header]))
	}
	m.index.remove(tagIn(w), at)
	if m.index.sparse() {
		m.resize(len(m.index.slots) / 2)
	}
	m.bury(at)
	m.unname(number)
}

// number returns the number of a name and counts one record more under it.
func (m *guarded) number(of id) uint32 {
	i, ok := m.known[of]
	if !ok {
		of.sub = strings.Clone(of.sub) // the policy keeps its own string, which is then equal at a glance
		i = m.enlist(of)
		if m.known == nil {
			m.known = map[id]uint32{}
		}
		m.known[of] = i
	}
	m.under[i]++
	return i
}

func (m *guarded) enlist(of id) uint32 {
	if k := len(m.spare.names); k > 0 {
		i := m.spare.names[k-1]
		m.spare.names = m.spare.names[:k-1]
		m.rename(i, of)
		return i
	}
	m.under = append(m.under, 0)
	m.names = append(slices.Clip(m.names), of)
	m.publish()
	return uint32(len(m.names) - 1)
}

// unname counts one record less under a name; the last one frees it.
func (m *guarded) unname(i uint32) {
	if m.under[i]--; m.under[i] > 0 {
		return
	}
	delete(m.known, m.names[i])
	m.rename(i, id{})
	m.spare.names = append(m.spare.names, i)
}

func (m *guarded) rename(i uint32, to id) {
	m.names = slices.Clone(m.names)
	m.names[i] = to
	m.publish()
}
