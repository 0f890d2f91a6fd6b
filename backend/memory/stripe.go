package memory

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so a set of them is decided all or nothing.
type stripe struct {
	mu guarded
}

// guarded is what the lock beside it guards, but for the turns, and when one is
// due: those are hints that hits write without. The first cache lines are what
// nearly every hit reads of it, and are seldom written: each table is replaced
// under the lock, while hits go on reading what they have.
type guarded struct {
	tables [largest - smallest + 1]atomic.Pointer[table] // by the size of their records; nil: none
	due    atomic.Int64                                  // when the next turn is, by the store's clock; 0: none is. See turns
	_      [64]byte

	dropped atomic.Int64 // records, written under the lock; see place
	_       [64]byte

	sync.Mutex
	turns  turns
	latest int64 // the last decision's instant under the lock, by the store's own clock
	calls  uint
	hand   struct{ table, cell int } // where the sweep goes on
	tabled int                       // how many tables there are: a sweep passes by where there are none

	many  [][]int64 // words of the kinds that keep many, and of long keys
	spare []uint32  // numbers that are free
	_     [64]byte  // the next stripe's tables
}

// table returns the table of the records of that size, nil where there are none.
func (m *guarded) table(size int) *table { return m.tables[size-smallest].Load() }

// find returns the cell of a key's record of that name, and a nil table where it
// has none.
func (m *guarded) find(hash uint64, key string, of name) (t *table, cell int) {
	t = m.table(sizeOf(of.kind(), len(key)))
	if t == nil {
		return nil, 0
	}
	tag := of.tag(hash)
	for g, mark := t.home(tag), markOf(tag); ; g = t.next(g) {
		marks := t.marks(g)
		for set := matches(marks, mark); set != 0; set &= set - 1 {
			i := g*group + first(set)
			if w := t.at(i); atomic.LoadInt64(&w[tagWord])&^dead == head(tag, of.kind(), key) && m.is(w, key, of) {
				return t, i
			}
		}
		if matches(marks, empty) != 0 {
			return nil, 0
		}
	}
}

// is reports whether a record, found by its first word, is a key's of that name.
// Who asks owns it, or holds the lock.
func (m *guarded) is(w []int64, key string, of name) bool {
	if restIn(atomic.LoadInt64(&w[untilWord])) != of.rest() {
		return false
	}
	from := header + wordsOf(of.kind())
	if len(key) > inline {
		return isKey(m.many[w[from]], 0, key)
	}
	return isKey(w, from, key)
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

// keep enters a record of that name, for which there is room. It is owned.
func (m *guarded) keep(hash uint64, key string, of name, words []int64, resetAt int64) []int64 {
	n, tag := wordsOf(of.kind()), of.tag(hash)
	t := m.table(sizeOf(of.kind(), len(key)))
	cell := t.room(tag)
	w := t.at(cell)
	w[untilWord] = until(resetAt, of.rest())
	if keepsMany(of.kind()) {
		w[header] = m.aside(words)
	} else {
		copy(w[header:header+n], words)
	}
	m.putKey(w[header+n:], key) // a copy: the caller's string may be a small part of a large one
	atomic.StoreInt64(&w[tagWord], head(tag, of.kind(), key)|mine)
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
	m.freeAsides(w)
	kill(w)
	m.dropped.Add(1) // before another record comes to the cell
	t.leave(cell)
	if t.live == 0 {
		m.replace(t.size, nil)
	} else if t.sparse() {
		m.resize(t, t.live)
	}
	m.renumber()
}
