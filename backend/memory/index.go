package memory

import "sync/atomic"

// index finds records: open addressing with linear probing. A slot holds a
// record's tag in its upper half and its place + 1 in the lower; 0 is free.
//
// It is changed under the stripe's lock and searched without. Who searches
// while records leave may miss one that is there, and what it finds may have
// left: see shape.
//
// A tag's upper bits say where the search for it begins, so that the slots can
// grow by half, to any number, and no record is touched when they do.
type index struct {
	slots []atomic.Uint64
	count int
}

const smallest = 8

func home(tag uint32, slots int) int { return int(uint64(tag) * uint64(slots) >> 32) }

func (x *index) home(tag uint32) int { return home(tag, len(x.slots)) }

func (x *index) next(i int) int {
	if i++; i < len(x.slots) {
		return i
	}
	return 0
}

func slot(tag uint32, p place) uint64 { return uint64(tag)<<32 | uint64(p+1) }

func tagOf(slot uint64) uint32 { return uint32(slot >> 32) }

func placeOf(slot uint64) place { return place(slot) - 1 }

// full reports whether the next record needs more slots: at most 7 in 8 are
// taken, so that a search ends.
func (x *index) full() bool { return (x.count+1)*8 > len(x.slots)*7 }

// sparse reports whether half the slots would do.
func (x *index) sparse() bool { return len(x.slots) > smallest && x.count*4 < len(x.slots) }

// add enters a record, for which there is room.
func (x *index) add(tag uint32, p place) {
	x.enter(slot(tag, p))
	x.count++
}

func (x *index) enter(e uint64) {
	i := x.home(tagOf(e))
	for x.slots[i].Load() != 0 {
		i = x.next(i)
	}
	x.slots[i].Store(e)
}

func (x *index) resize(n int) {
	old := x.slots
	x.slots = make([]atomic.Uint64, max(smallest, n))
	for i := range old {
		if e := old[i].Load(); e != 0 {
			x.enter(e)
		}
	}
}

// where returns the slot of a record that is entered.
func (x *index) where(tag uint32, p place) int {
	i := x.home(tag)
	for x.slots[i].Load() != slot(tag, p) {
		i = x.next(i)
	}
	return i
}

func (x *index) move(tag uint32, from, to place) {
	x.slots[x.where(tag, from)].Store(slot(tag, to))
}

// remove frees a record's slot, and moves up those behind that were pushed on
// by it: there are no tombstones, which would only ever gather.
func (x *index) remove(tag uint32, p place) {
	hole := x.where(tag, p)
	for i := x.next(hole); ; i = x.next(i) {
		e := x.slots[i].Load()
		if e == 0 {
			break
		}
		if x.distance(x.home(tagOf(e)), i) >= x.distance(hole, i) {
			x.slots[hole].Store(e)
			hole = i
		}
	}
	x.slots[hole].Store(0)
	x.count--
}

// distance is how far a search goes from one slot to another.
func (x *index) distance(from, to int) int {
	if to < from {
		to += len(x.slots)
	}
	return to - from
}
