package memory

import (
	"iter"
	"math/bits"
)

// table holds the records of one size by open addressing. Its slots lie in
// groups of eight. A group has a word of control bytes, one per slot: whether
// the slot is in use, and then eight bits of its record's tag. A search compares
// the eight control bytes of a group at once, and reads nearly always only the
// record that it is for. The control bytes of a million keys are a megabyte,
// which stays in a core's cache. (The layout is that of absl::flat_hash_map.)
type table struct {
	size   int     // words per record
	groups int     // of eight slots
	stride int     // groups from one to the next in the sweep's order
	words  []int64 // the control words of all groups, then the slots

	live    int // slots in use
	deleted int // free slots at which searches for other records do not end
}

const groupSlots = 8

// The control bytes. From inUse on they are of a record.
const (
	empty uint8 = iota
	deleted
	inUse
)

func newTable(size, groups int) *table {
	words := make([]int64, groups*(1+groupSlots*size))
	return &table{size: size, groups: groups, stride: strideOf(groups), words: words}
}

// strideOf returns a stride that visits each group once before it comes back:
// one without a common factor, near the golden section of the groups.
func strideOf(groups int) int {
	n := groups * 618 / 1000  // mutant: sweep-spreads
	for gcd(n, groups) != 1 { // mutant: sweep-visits-all
		n++
	}
	return n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// visited returns the i-th slot in the sweep's order, which goes over the whole
// table in small steps. In the order of the slots the idle records would all be
// ahead of the sweep: that part would be overfull, and searches in it long.
func (t *table) visited(i int) int {
	return i/groupSlots*t.stride%t.groups*groupSlots + i%groupSlots
}

func controlOf(tag uint32) uint8 { return max(uint8(tag), inUse) }

// home returns the group at which the search for a tag begins. The tag's upper
// bits choose it: records that move to another table move in order.
func (t *table) home(tag uint32) int { return int(uint64(tag) * uint64(t.groups) >> 32) }

func (t *table) following(g int) int {
	if g++; g < t.groups {
		return g
	}
	return 0
}

func (t *table) controls(g int) uint64 { return uint64(t.words[g]) }

const eachByte = 0x0101_0101_0101_0101

// matches returns the upper bit of each byte that is b in the control word. It
// may also return that of a byte b ^ 1 above one that is b: callers look again.
func matches(controls uint64, b uint8) uint64 {
	x := controls ^ uint64(b)*eachByte
	return (x - eachByte) &^ x & (eachByte << 7)
}

// free returns the upper bit of each byte that is of no record.
func free(controls uint64) uint64 { return matches(controls&^eachByte, empty) }

// firstOf returns the index of the first byte of which the upper bit is set.
func firstOf(set uint64) int { return bits.TrailingZeros64(set) / 8 }

func (t *table) slots() int { return t.groups * groupSlots }

func (t *table) at(slot int) record {
	from := t.groups + slot*t.size
	return t.words[from : from+t.size : from+t.size]
}

// records yields the records in the order of the slots.
func (t *table) records() iter.Seq[record] {
	return func(yield func(record) bool) {
		for slot := range t.slots() {
			if t.control(slot) >= inUse && !yield(t.at(slot)) {
				return
			}
		}
	}
}

func (t *table) control(slot int) uint8 {
	return uint8(t.controls(slot/groupSlots) >> (slot % groupSlots * 8))
}

func (t *table) setControl(slot int, b uint8) {
	shift := slot % groupSlots * 8
	t.words[slot/groupSlots] = int64(t.controls(slot/groupSlots)&^(0xff<<shift) | uint64(b)<<shift)
}

// insert returns a free slot's words for a record of that tag, all zero. The
// table has room for it.
func (t *table) insert(tag uint32) record {
	g := t.home(tag)
	for free(t.controls(g)) == 0 {
		g = t.following(g)
	}
	slot := g*groupSlots + firstOf(free(t.controls(g)))
	if t.control(slot) == deleted {
		t.deleted--
	}
	t.live++
	t.setControl(slot, controlOf(tag))
	r := t.at(slot)
	clear(r)
	return r
}

// remove frees a slot. The slot is empty at once where no search goes on
// beyond its group.
func (t *table) remove(slot int) {
	b := empty
	if matches(t.controls(slot/groupSlots), empty) == 0 {
		b = deleted
		t.deleted++
	}
	t.live--
	t.setControl(slot, b)
}

// full reports whether one more record needs more slots: at most 15 in 16 are
// not empty, so that each search ends.
func (t *table) full() bool { return (t.live+t.deleted+1)*16 > t.slots()*15 }

// sparse reports whether half the slots would do.
func (t *table) sparse() bool { return t.live*3 < t.slots() && t.groups > 1 }

// resized returns a table with the same records and room for n.
func (t *table) resized(n int) *table {
	to := newTable(t.size, groupsFor(n))
	for r := range t.records() {
		copy(to.insert(r.tag()), r)
	}
	return to
}

// groupsFor returns the groups of a table of n records: three tenths more than
// they fill, since both moving all records and an empty slot cost much.
func groupsFor(n int) int { return n*13*16/(10*15*groupSlots) + 1 }
