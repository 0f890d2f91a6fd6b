package memory

import (
	"sync"
	"sync/atomic"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so that they are decided together.
type stripe struct {
	idleFrom atomic.Int64 // no record is idle before; changed with the lock held
	_        [56]byte     // others read the line above, and the lock's is written by each call

	mu struct {
		sync.Mutex
		latest    int64                         // the last decision's instant, by the default clock
		calls     uint                          // since the store was made; some of them sweep
		hand      struct{ table, visited int }  // where the sweep goes on
		tables    [maxSize - minSize + 1]*table // by the size of their records; nil: none
		outOfLine outOfLine
		leases    leases
	}
	_ [64]byte // the next stripe's lock
}

// The methods below are called with the lock held.

// find returns the key's record of that identity, nil where there is none. It
// is valid until the next insert or remove.
func (st *stripe) find(hash uint64, key string, id identity) record {
	t, slot := st.locate(hash, key, id)
	if t == nil {
		return nil
	}
	return t.at(slot)
}

func (st *stripe) locate(hash uint64, key string, id identity) (t *table, slot int) {
	t = st.mu.tables[sizeOf(id.kind(), len(key))-minSize]
	if t == nil {
		return nil, 0
	}
	tag := id.tag(hash)
	head, control := headOf(tag, id.kind(), len(key)), controlOf(tag)
	for g := t.home(tag); ; g = t.following(g) {
		controls := t.controls(g)
		for set := matches(controls, control); set != 0; set &= set - 1 {
			slot := g*groupSlots + firstOf(set)
			if r := t.at(slot); r[headWord] == head && st.is(r, key, id) {
				return t, slot
			}
		}
		if matches(controls, empty) != 0 {
			return nil, 0
		}
	}
}

// is reports whether a record, of which the first word is right, is the key's
// of that identity.
func (st *stripe) is(r record, key string, id identity) bool {
	if r.rest() != id.rest() {
		return false
	}
	from := headerWords + wordsOf(id.kind())
	if len(key) > longKey {
		return isKey(st.mu.outOfLine.words[r[from]], key)
	}
	return isKey(r[from:], key)
}

// words returns the algorithm's words of a record.
func (st *stripe) words(r record) []int64 {
	k := r.kind()
	if manyWords(k) {
		return st.mu.outOfLine.words[r[headerWords]]
	}
	return r[headerWords : headerWords+wordsOf(k)]
}

// setWords stores an algorithm's words that may have moved.
func (st *stripe) setWords(r record, words []int64) {
	if manyWords(r.kind()) {
		st.mu.outOfLine.words[r[headerWords]] = words
	}
}

// insert makes a record for a key that has none of that identity. An algorithm
// with many words begins with that many of its own.
func (st *stripe) insert(hash uint64, key string, id identity, words int) {
	k, tag := id.kind(), id.tag(hash)
	r := st.room(sizeOf(k, len(key))).insert(tag)
	r[headWord], r[untilWord] = headOf(tag, k, len(key)), id.rest()
	if manyWords(k) {
		r[headerWords] = st.mu.outOfLine.add(make([]int64, words))
	}
	w := r[headerWords+wordsOf(k):]
	if len(key) > longKey {
		long := make([]int64, keyWords(len(key)))
		w[0] = st.mu.outOfLine.add(long)
		w = long
	}
	putKey(w, key) // a copy: the caller's string may be a small part of a large one
}

// room returns the table of records of a size, with room for one more.
func (st *stripe) room(size int) *table {
	t := &st.mu.tables[size-minSize]
	if *t == nil {
		*t = newTable(size, 1)
	} else if (*t).full() {
		*t = (*t).resized((*t).live + 1)
	}
	return *t
}

// stays keeps a record until at least an instant.
func (st *stripe) stays(r record, at, now int64) {
	isNew := r.until() == 0
	r.stay(at, now)
	if isNew { // the others' instants only grow
		st.idleFrom.Store(min(st.idleFrom.Load(), r.until()))
	}
}

// remove frees a record's slot and what the record holds out of line. It gives
// memory back where most of a table is free.
func (st *stripe) remove(t *table, slot int) {
	for _, number := range numbers(t.at(slot)) {
		st.mu.outOfLine.remove(number)
	}
	t.remove(slot)
	if t.live == 0 {
		st.mu.tables[t.size-minSize] = nil
	} else if t.sparse() {
		st.mu.tables[t.size-minSize] = t.resized(t.live)
	}
	if st.mu.outOfLine.sparse() {
		st.renumber()
	}
}

// numbers returns the words of a record that are numbers of words out of line.
func numbers(r record) []int64 {
	k := r.kind()
	from, to := headerWords, headerWords+wordsOf(k)
	if !manyWords(k) {
		from = to
	}
	if r.keyLen() > longKey {
		to++
	}
	return r[from:to]
}

// renumber gives what is out of line the first numbers, and frees the others.
func (st *stripe) renumber() {
	var to outOfLine
	for _, t := range st.mu.tables {
		if t == nil {
			continue
		}
		for r := range t.records() {
			for i, number := range numbers(r) {
				numbers(r)[i] = to.add(st.mu.outOfLine.words[number])
			}
		}
	}
	st.mu.outOfLine = to
}
