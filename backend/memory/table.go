package memory

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// table holds the records of one size that a stripe has, in cells that are found
// by open addressing, eight to a group. A mark tells of each cell whether it is
// taken, and by what: eight bits of the record's tag. A search reads a group's
// eight marks at once, and of the records nearly always none but the one that it
// is for. The marks of all stripes, a byte a key, stay in a core's own cache with
// a million keys; in an index of eight bytes a slot beside the records each
// search had a cache miss more.
//
// It is changed under the stripe's lock and searched without. Who searches
// meanwhile may miss a record that is there, and what a mark tells of may have
// left: a record is what its first word says once it is owned. Where a table
// is replaced nobody but the lock owns a record of it any more.
type table struct {
	size   int     // words of a record
	groups int     // each has eight cells
	stride int     // from group to group in the order of visits
	words  []int64 // a word of marks for each group, and then the cells

	// Of the cells, under the stripe's lock:
	live    int
	deleted int // empty, but searches for others have to go on behind them
}

const group = 8

// The marks. All above deleted are a record's.
const (
	empty uint8 = iota
	deleted
	lowest
)

func newTable(size, groups int) *table {
	return &table{size: size, groups: groups, stride: strideOf(groups), words: make([]int64, groups*(1+group*size))}
}

// strideOf is a stride that comes to each group once before it comes to one
// again, and near no group twice in a while: about the golden section.
func strideOf(groups int) int {
	n := groups * 618 / 1000
	for gcd(n, groups) != 1 {
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

// visited is the i-th cell in the order of visits, which goes over the whole
// table in small steps. In the order of the cells, which is that of the
// searches' homes, the part ahead of who visits and drops would hold all that
// is idle, be more than full, and searches there go on for hundreds of groups.
func (t *table) visited(i int) int { return i/group*t.stride%t.groups*group + i%group }

func markOf(tag uint32) uint8 { return max(uint8(tag), lowest) }

// home is the group where the search for a tag begins. Its upper bits say so:
// records that move to another table move in order.
func (t *table) home(tag uint32) int { return int(uint64(tag) * uint64(t.groups) >> 32) }

func (t *table) next(g int) int {
	if g++; g < t.groups {
		return g
	}
	return 0
}

func (t *table) marks(g int) uint64 { return uint64(atomic.LoadInt64(&t.words[g])) }

const each = 0x0101_0101_0101_0101

// matches has a bit set in each byte that is m in the marks, or, seldom, is m ^ 1
// behind one that is.
func matches(marks uint64, m uint8) uint64 {
	x := marks ^ uint64(m)*each
	return (x - each) &^ x & (each << 7)
}

// vacant has a bit set in each byte that is no record's.
func vacant(marks uint64) uint64 { return matches(marks&^each, empty) }

func taken(marks uint64) uint64 { return vacant(marks) ^ each<<7 }

// first is which byte has the first bit.
func first(set uint64) int { return bits.TrailingZeros64(set) / 8 }

func (t *table) cells() int { return t.groups * group }

// at returns the words of a cell.
func (t *table) at(i int) []int64 {
	from := t.groups + i*t.size
	return t.words[from : from+t.size : from+t.size]
}

// records are the words of each cell that is taken, in the order of the cells.
func (t *table) records() iter.Seq[[]int64] {
	return func(yield func([]int64) bool) {
		for g := range t.groups {
			for set := taken(t.marks(g)); set != 0; set &= set - 1 {
				if !yield(t.at(g*group + first(set))) {
					return
				}
			}
		}
	}
}

func markAt(marks uint64, cell int) uint8 { return uint8(marks >> (cell * 8)) }

func (t *table) mark(i int) uint8 { return markAt(t.marks(i/group), i%group) }

func (t *table) setMark(i int, m uint8) {
	shift := i % group * 8
	atomic.StoreInt64(&t.words[i/group], int64(t.marks(i/group)&^(0xff<<shift)|uint64(m)<<shift))
}

// likely is a record's first choice of its home's eight cells.
func likely(tag uint32) int { return int(tag>>8) % group }

// room returns a cell for a record that the table has room for: of its home the
// likely one, if it may.
func (t *table) room(tag uint32) int {
	for g := t.home(tag); ; g = t.next(g) {
		if set := vacant(t.marks(g)); set>>(likely(tag)*8+7)&1 != 0 {
			return g*group + likely(tag)
		} else if set != 0 {
			return g*group + first(set)
		}
	}
}

// enter marks a cell as a record's, whose words are written: from here on it is
// found.
func (t *table) enter(i int, tag uint32) {
	if t.mark(i) == deleted {
		t.deleted--
	}
	t.live++
	t.setMark(i, markOf(tag))
}

// adopt takes over a record of another table, which is owned there and stays
// so. Nobody has seen this table yet.
func (t *table) adopt(from []int64) {
	tag := tagIn(from)
	cell := t.room(tag)
	w := t.at(cell)
	w[tagWord] = atomic.LoadInt64(&from[tagWord]) &^ mine
	copy(w[untilWord:], from[untilWord:])
	t.live++
	t.words[cell/group] |= int64(markOf(tag)) << (cell % group * 8)
}

// leave marks a cell as nobody's. It is empty at once where no search has
// gone on behind its group.
func (t *table) leave(i int) {
	m := empty
	if matches(t.marks(i/group), empty) == 0 {
		m = deleted
		t.deleted++
	}
	t.live--
	t.setMark(i, m)
}

// full reports whether n more records need more cells: at most 15 in 16 are
// marked, so that a search ends.
func (t *table) full(n int) bool { return (t.live+t.deleted+n)*16 > t.cells()*15 }

// sparse reports whether half the cells would do.
func (t *table) sparse() bool { return t.live*3 < t.cells() && t.groups > 1 }

// groupsFor is how many groups a table of n records gets: three tenths more
// than they need, since to move them all is dear, and so is an empty cell.
func groupsFor(n int) int { return n*13*16/(10*15*group) + 1 }
