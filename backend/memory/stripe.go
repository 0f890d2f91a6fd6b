package memory

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo/rule"
)

// stripe is a part of the store under one lock. All policies of a key lie in
// one stripe, so that they are decided together.
//
// A call holds the locks of its keys' stripes until it is decided. It takes a further
// stripe's lock only by TryLock, in a sweep or in a search for room. The overflow's lock
// comes last.
type stripe struct {
	classes  *classes     // nil in the overflow, whose records count for none
	idleFrom atomic.Int64 // no record is idle before; changed with the lock held
	_        [48]byte     // others read the line above, and the lock's is written by each call

	mu struct {
		sync.Mutex
		latest  int64 // the last decision's instant, by the default clock
		calls   uint  // since the store was made; some of them sweep
		records table
		many    map[hash][]int64 // the words of kinds with many, of each such record
		charged int64            // no record that has left had a greater sum of charges
		leases  leases

		lent      map[hash]*rule.Lent // what is lent of records; nil while nothing is
		borrowers fading[borrower]    // what each of those that borrowed lately holds
	}
	_ [64]byte // the next stripe's lock
}

const (
	maxStripes = 256 // so many that two calls seldom need the same
	perStripe  = 32  // keys at least: the search for an idle one looks at one stripe first

	// mostPerStripe is the number of keys from which on there are more stripes. A snapshot goes
	// over a stripe with its lock held.
	mostPerStripe = 1 << 16
)

// newStripes returns as many stripes as a store of maxKeys counts needs: one for a small
// store.
func newStripes(maxKeys int64, all *classes) []stripe {
	stripes := make([]stripe, max(1, min(maxKeys/perStripe, max(maxStripes, min(maxKeys/mostPerStripe, places)))))
	for i := range stripes {
		stripes[i].classes = all
		stripes[i].mu.calls = uint(i) // so that the stripes sweep one after the other
	}
	return stripes
}

// kindsOfMany has a bit for each kind that has more words than a record holds.
var kindsOfMany = func() (set uint16) {
	for k := range rule.Kind(maxKind + 1) {
		if k.Words() == 0 {
			set |= 1 << k
		}
	}
	return set
}()

func (id identity) manyWords() bool { return kindsOfMany>>(id&maxKind)&1 != 0 }

// The methods below are called with the lock held.

// words returns the algorithm's words of a record.
func (st *stripe) words(h hash, id identity, r *record) []int64 {
	if id.manyWords() {
		return st.mu.many[h]
	}
	return r.few[:]
}

// setWords stores an algorithm's words that may have moved.
func (st *stripe) setWords(h hash, id identity, words []int64) {
	if id.manyWords() {
		st.mu.many[h] = words
	}
}

// insert makes a record for an algorithm's words. The table has room for it.
//
// The words are zeros, but for the sum of charges. The caller stores what was charged
// before it releases the lock, so no other call sees an empty record.
func (st *stripe) insert(h hash, id identity, words int, of *class) *record {
	if id.manyWords() {
		if st.mu.many == nil {
			st.mu.many = map[hash][]int64{}
		}
		st.mu.many[h] = make([]int64, words)
	}
	index := of.index
	if st.classes == nil {
		index = 0
	}
	r := st.mu.records.insert(h, index)
	if id.kind().Sums() { // or a lease of an earlier record would give back
		//mutant:earlier-record-gives-back
		r.few[2] = st.mu.charged
	}
	return r
}

// stays keeps a record until at least an instant.
//
// An instant only grows here. So idleFrom, the least of all, changes only for a new record
// and after a search.
func (st *stripe) stays(r *record, at int64) {
	isNew := r.until == 0
	r.stay(at)
	if isNew { // the others' instants only grow
		st.idleFrom.Store(min(st.idleFrom.Load(), r.until))
	}
}

// remove removes the record of a slot.
//
// What stands beside the record goes with it. charged remembers its sum of charges, so that
// a lease of it can't take from a later record of the same count.
func (st *stripe) remove(slot int) {
	gone := &st.mu.records.slots[slot]
	delete(st.mu.many, gone.hash)
	if st.mu.lent != nil {
		st.dropLent(gone.hash)
	}
	st.mu.charged = max(st.mu.charged, gone.few[2]) // of another kind it is another number
	if st.classes != nil {
		//mutant:class-gets-it-back
		st.classes.at(st.mu.records.class(slot)).kept.Add(-1)
	}
	if st.mu.records.remove(slot) {
		st.mu.many = maps.Collect(maps.All(st.mu.many)) // a map does not shrink
	}
}
