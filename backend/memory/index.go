package memory

// index finds records: open addressing with linear probing. A slot holds a
// record's tag in its upper half and its place + 1 in the lower; 0 is free.
//
// A tag's upper bits say where the search for it begins, so that the slots can
// grow by half, to any number, and no record is touched when they do.
type index struct {
	slots []uint64
	count int
}

const smallest = 8

func (x *index) home(tag uint32) int { return int(uint64(tag) * uint64(len(x.slots)) >> 32) }

func (x *index) next(i int) int {
	if i++; i < len(x.slots) {
		return i
	}
	return 0
}

func slot(tag uint32, p place) uint64 { return uint64(tag)<<32 | uint64(p+1) }

func tagOf(slot uint64) uint32 { return uint32(slot >> 32) }

func placeOf(slot uint64) place { return place(slot) - 1 }

// add enters a record. At most 7 slots in 8 are taken, so that a search ends.
func (x *index) add(tag uint32, p place) {
	if (x.count+1)*8 > len(x.slots)*7 {
		x.resize(max(smallest, len(x.slots)+len(x.slots)/2))
	}
	x.enter(slot(tag, p))
	x.count++
}

func (x *index) enter(e uint64) {
	i := x.home(tagOf(e))
	for x.slots[i] != 0 {
		i = x.next(i)
	}
	x.slots[i] = e
}

func (x *index) resize(n int) {
	old := x.slots
	x.slots = make([]uint64, n)
	for _, e := range old {
		if e != 0 {
			x.enter(e)
		}
	}
}

// where returns the slot of a record that is entered.
func (x *index) where(tag uint32, p place) int {
	i := x.home(tag)
	for x.slots[i] != slot(tag, p) {
		i = x.next(i)
	}
	return i
}

func (x *index) move(tag uint32, from, to place) { x.slots[x.where(tag, from)] = slot(tag, to) }

// remove frees a record's slot, and moves up those behind that were pushed on
// by it: there are no tombstones, which would only ever gather.
func (x *index) remove(tag uint32, p place) {
	hole := x.where(tag, p)
	for i := x.next(hole); x.slots[i] != 0; i = x.next(i) {
		if x.distance(x.home(tagOf(x.slots[i])), i) >= x.distance(hole, i) {
			x.slots[hole], hole = x.slots[i], i
		}
	}
	x.slots[hole] = 0
	x.count--
	if n := len(x.slots); n > smallest && x.count*4 < n {
		x.resize(max(smallest, n/2))
	}
}

// distance is how far a search goes from one slot to another.
func (x *index) distance(from, to int) int {
	if to < from {
		to += len(x.slots)
	}
	return to - from
}
