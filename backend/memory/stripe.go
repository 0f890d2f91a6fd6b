package memory

import (
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

// guarded is what the lock beside it guards, but for the turns, and when one is
// due: those are hints that hits write without. The first cache lines are what
// nearly every hit reads of it, and are seldom written: each table is replaced
// under the lock, and the names are, while hits go on reading what they have.
type guarded struct {
	tables [largest - smallest + 1]atomic.Pointer[table] // by the size of their records; nil: none
	names  atomic.Pointer[[]id]                          // by their numbers; what it points to is never written
	due    atomic.Int64                                  // when the next turn is, by the store's clock; 0: none is. See turns
	_      [64]byte

	sync.Mutex
	turns  turns
	latest int64 // the last decision's instant under the lock, by the store's own clock
	calls  uint
	hand   struct{ table, cell int } // where the sweep goes on
	tabled int                       // how many tables there are: a sweep passes by where there are none

	under []int     // how many records have each name
	many  [][]int64 // words of the kinds that keep many, and of long keys
	known map[id]uint32
	spare struct{ names, many []uint32 } // numbers that are free
	_     [64]byte                       // the next stripe's tables
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

// table returns the table of the records of that size, nil where there are none.
func (m *guarded) table(size int) *table { return m.tables[size-smallest].Load() }

// find returns the cell where a policy has its record of a key, and a nil table
// where it has none.
func (m *guarded) find(tag uint32, key, sub string, p *backend.Policy) (t *table, cell int) {
	t = m.table(sizeOf(p.Algorithm.Kind(), len(key)))
	if t == nil {
		return nil, 0
	}
	for g, mark := t.home(tag), markOf(tag); ; g = t.next(g) {
		marks := t.marks(g)
		for set := matches(marks, mark); set != 0; set &= set - 1 {
			i := g*group + first(set)
			if w := t.at(i); atomic.LoadInt64(&w[tagWord])&^dead == head(tag, key) && m.is(w, key, sub, p) {
				return t, i
			}
		}
		if matches(marks, empty) != 0 {
			return nil, 0
		}
	}
}

// is reports whether a record of a key of that length is the key's own for
// the policy. Who asks owns it, or holds the lock. Names are compared last, by
// calls that nothing has to be kept over.
func (m *guarded) is(w []int64, key, sub string, p *backend.Policy) bool {
	n, k := m.name(w), p.Algorithm.Kind()
	if n.kind != k || len(n.sub) != len(sub) {
		return false
	}
	w = w[header+wordsOf(k):]
	if len(key) > inline {
		w = m.many[w[0]]
	}
	return isKey(w, key) && n.policy == p.Name && (sub == "" || n.sub == sub)
}

func (m *guarded) name(w []int64) *id {
	return &(*m.names.Load())[nameIn(atomic.LoadInt64(&w[untilWord]))]
}

// counts returns the words of a record that is owned, to be read and written
// in place.
func (m *guarded) counts(w []int64, k algo.Kind) []int64 {
	if keepsMany(k) {
		return m.many[w[header]]
	}
	return w[header : header+wordsOf(k)]
}

// reserve makes room for n more records of a size. Records move, so none may
// be owned.
func (m *guarded) reserve(size, n int) {
	t := m.table(size)
	if t == nil {
		m.replace(size, newTable(size, groupsFor(n)))
	} else if t.full(n) {
		m.resize(t, t.live+n)
	}
}

// resize moves a table's records to one that has room for n. Hits that wait for
// one of them, or find it late, find it owned for good.
func (m *guarded) resize(t *table, n int) {
	to := newTable(t.size, groupsFor(n))
	for w := range t.records() {
		to.adopt(m.own(w))
	}
	m.replace(t.size, to)
}

// replace lets searches find another table of a size, or none.
func (m *guarded) replace(size int, to *table) {
	from := m.tables[size-smallest].Swap(to)
	if from == nil {
		m.tabled++
	} else if to == nil {
		m.tabled--
	}
}

// keep enters a record for the group's i-th policy, for which there is room. It
// is owned.
func (m *guarded) keep(tag uint32, g *backend.Group, i int, words []int64, resetAt int64) []int64 {
	name := idOf(g, i)
	n := wordsOf(name.kind)
	t := m.table(sizeOf(name.kind, len(g.Key)))
	cell := t.room(tag)
	w := t.at(cell)
	w[untilWord] = until(resetAt, m.number(name))
	if keepsMany(name.kind) {
		w[header] = m.aside(words)
	} else {
		copy(w[header:header+n], words)
	}
	m.putKey(w[header+n:], g.Key) // a copy: the caller's string may be a small part of a large one
	atomic.StoreInt64(&w[tagWord], head(tag, g.Key)|mine)
	t.enter(cell, tag)
	return w
}

func (m *guarded) putKey(w []int64, key string) {
	if len(key) > inline {
		long := make([]int64, keyWords(len(key)))
		w[0] = m.aside(long)
		w = long
	}
	putKey(w, key)
}

// drop forgets a record that is owned.
func (m *guarded) drop(t *table, cell int) {
	w := t.at(cell)
	number := nameIn(w[untilWord])
	m.freeAsides(w)
	kill(w)
	t.leave(cell)
	m.unname(number)
	if t.live == 0 {
		m.replace(t.size, nil)
	} else if t.sparse() {
		m.resize(t, t.live)
	}
	m.renumber()
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
	m.rename(uint32(len(m.under)-1), of)
	return uint32(len(m.under) - 1)
}

// unname counts one record less under a name; the last one frees it.
func (m *guarded) unname(i uint32) {
	if m.under[i]--; m.under[i] > 0 {
		return
	}
	delete(m.known, (*m.names.Load())[i])
	m.rename(i, id{})
	m.spare.names = append(m.spare.names, i)
}

func (m *guarded) rename(i uint32, to id) {
	names := make([]id, len(m.under))
	if old := m.names.Load(); old != nil {
		copy(names, *old)
	}
	names[i] = to
	m.names.Store(&names)
}
