package memory

import (
	"strings"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so a set of them is decided all or nothing.
type stripe struct {
	mu guarded
	_  [24]byte // whole cache lines: neighbours' locks must not share one
}

// guarded is what the lock beside it guards. What each call writes is in the
// first cache line, which travels between the cores that call; the second is
// only read by a call that finds its record; the others it does not touch.
type guarded struct {
	sync.Mutex
	latest int64 // the last decision's instant, by the store's own clock
	calls  uint
	hand   struct{ seg, off int } // where the sweep goes on
	names  []name

	index index
	words [][]int64 // the segments
	last  int       // the one where new records go

	segs  []segment
	many  [][]int64 // words of the kinds that keep many
	known map[id]uint32
	spare struct{ names, many []uint32 } // numbers that are free
}

// id is what a record is named by beside its key. Two algorithms under one
// policy name do not read each other's words.
type id struct {
	policy, sub string
	kind        algo.Kind
}

// name is an id that records of the stripe have, under a number: nearly always
// there is one a policy.
type name struct {
	id
	records int
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
		e := x.slots[j]
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
	if len(w) < header || int(uint32(w[tagWord])) != len(key) {
		return false
	}
	n, k := &m.names[nameIn(w[untilWord])], p.Algorithm.Kind()
	return n.kind == k && n.policy == p.Name && n.sub == sub && isKey(w[header+wordsOf(k):], key)
}

// counts returns a record's words, to be read and written in place.
func (m *guarded) counts(at place, k algo.Kind) []int64 {
	w := m.at(at)
	if keepsMany(k) {
		return m.many[w[header]]
	}
	return w[header : header+wordsOf(k)]
}

// stay keeps the record until at least an instant.
func (m *guarded) stay(at place, resetAt int64) {
	w := &m.at(at)[untilWord]
	*w = until(resetAt, nameIn(*w))
}

// keep enters a record for the group's i-th policy.
func (m *guarded) keep(tag uint32, g *backend.Group, i int, words []int64, resetAt int64) place {
	name := idOf(g, i)
	n := wordsOf(name.kind)
	at := m.room(header + n + keyWords(len(g.Key)))
	w := m.at(at)
	w[tagWord] = int64(tag)<<32 | int64(len(g.Key))
	w[untilWord] = until(resetAt, m.number(name))
	if keepsMany(name.kind) {
		w[header] = m.aside(words)
	} else {
		copy(w[header:header+n], words)
	}
	putKey(w[header+n:], g.Key) // a copy: the caller's string may be a small part of a large one
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

// drop forgets a record.
func (m *guarded) drop(at place) {
	w := m.at(at)
	number := nameIn(w[untilWord])
	if keepsMany(m.names[number].kind) {
		m.many[w[header]] = nil
		m.spare.many = append(m.spare.many, uint32(w[header]))
	}
	m.index.remove(tagIn(w), at)
	m.bury(at)
	m.unname(number)
}

// number returns the number of a name and counts one record more under it.
func (m *guarded) number(of id) uint32 {
	i, ok := m.known[of]
	if !ok {
		of.sub = strings.Clone(of.sub) // the policy keeps its own string, which is then equal at a glance
		i = m.enlist(name{id: of})
		if m.known == nil {
			m.known = map[id]uint32{}
		}
		m.known[of] = i
	}
	m.names[i].records++
	return i
}

func (m *guarded) enlist(n name) uint32 {
	if k := len(m.spare.names); k > 0 {
		i := m.spare.names[k-1]
		m.spare.names = m.spare.names[:k-1]
		m.names[i] = n
		return i
	}
	m.names = append(m.names, n)
	return uint32(len(m.names) - 1)
}

// unname counts one record less under a name; the last one frees it.
func (m *guarded) unname(i uint32) {
	n := &m.names[i]
	if n.records--; n.records > 0 {
		return
	}
	delete(m.known, n.id)
	*n = name{}
	m.spare.names = append(m.spare.names, i)
}
