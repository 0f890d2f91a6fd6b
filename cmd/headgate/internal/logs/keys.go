package logs

import (
	"hash/maphash"
	"strings"
)

// MostKeys bounds the keys that are kept by default.
const MostKeys = 20_000_000

// Keys gives each text a number. The numbers are 0, 1, 2 and so on.
//
// It is a hash table with linear probing, without pointers. A key takes some 20 bytes beside its
// text, and the garbage collector has nothing to scan. Texts are compared, so no two share a number.
type Keys struct {
	seed   maphash.Seed
	slots  []slot // a power of 2
	filled int    // slots in use: those of numbers, and those of other texts of them
	names  Column[text]
	other  Column[text] // texts that have the number of another one
	pieces []string     // the texts, many in one piece of memory
	last   strings.Builder
}

// slot is free if its entry is 0. Else that is 1 + the number of a text, or -1 - the place of
// another text.
type slot struct {
	hash  uint32
	entry int32
}

// text is where a text is, and its number.
type text struct {
	piece  uint32
	begin  uint32
	length uint32
	number uint32
}

// NewKeys returns an empty table.
func NewKeys() *Keys { return &Keys{seed: maphash.MakeSeed(), slots: make([]slot, 16)} }

// Len returns how many there are.
func (k *Keys) Len() int { return k.names.Len() }

// Name returns the text of a number.
func (k *Keys) Name(n uint32) string { return k.at(k.names.At(n)) }

func (k *Keys) at(t *text) string { return k.pieces[t.piece][t.begin : t.begin+t.length] }

// Number returns the number of a text.
func (k *Keys) Number(b []byte) uint32 {
	n, ok := k.find(b)
	if !ok {
		n = uint32(k.names.Len())
		*k.names.Add() = k.keep(b, n)
		k.insert(b, int32(n)+1)
	}
	return n
}

// alias gives a text the number of another one.
func (k *Keys) alias(b []byte, n uint32) {
	*k.other.Add() = k.keep(b, n)
	k.insert(b, -int32(k.other.Len()))
}

// find returns the number of a text that has one.
func (k *Keys) find(b []byte) (uint32, bool) {
	h := maphash.Bytes(k.seed, b)
	for i := h & uint64(len(k.slots)-1); ; i = (i + 1) & uint64(len(k.slots)-1) {
		s := &k.slots[i]
		if s.entry == 0 {
			return 0, false
		}
		if s.hash != uint32(h>>32) {
			continue
		}
		if t := k.of(s); k.at(t) == string(b) {
			return t.number, true
		}
	}
}

// of returns the text of a slot.
func (k *Keys) of(s *slot) *text {
	if s.entry > 0 {
		return k.names.At(uint32(s.entry - 1))
	}
	return k.other.At(uint32(-s.entry - 1))
}

// insert puts an entry into a free slot. At most two in three are in use.
func (k *Keys) insert(b []byte, entry int32) {
	if k.filled++; k.filled*3 > len(k.slots)*2 {
		old := k.slots
		k.slots = make([]slot, 2*len(old))
		for _, s := range old {
			if s.entry != 0 {
				k.put(maphash.String(k.seed, k.at(k.of(&s))), s.entry)
			}
		}
	}
	k.put(maphash.Bytes(k.seed, b), entry)
}

func (k *Keys) put(h uint64, entry int32) {
	i := h & uint64(len(k.slots)-1)
	for k.slots[i].entry != 0 {
		i = (i + 1) & uint64(len(k.slots)-1)
	}
	k.slots[i] = slot{uint32(h >> 32), entry}
}

// keep copies a text into the last piece. Pieces have 64 KiB: a string of a Builder shares its
// memory, which is never moved while it has room.
func (k *Keys) keep(b []byte, n uint32) text {
	const piece = 64 << 10
	if len(k.pieces) == 0 || k.last.Cap()-k.last.Len() < len(b) {
		k.last = strings.Builder{}
		k.last.Grow(max(piece, len(b)))
		k.pieces = append(k.pieces, "")
	}
	begin := k.last.Len()
	k.last.Write(b)
	k.pieces[len(k.pieces)-1] = k.last.String()
	return text{uint32(len(k.pieces) - 1), uint32(begin), uint32(len(b)), n}
}

// Column is a list that grows without being copied.
type Column[T any] struct {
	chunks [][]T
	len    int
}

const chunk = 1 << 12

// Len returns the number of elements.
func (c *Column[T]) Len() int { return c.len }

// At returns an element.
func (c *Column[T]) At(i uint32) *T { return &c.chunks[i/chunk][i%chunk] }

// Add appends a zero element.
func (c *Column[T]) Add() *T {
	if c.len%chunk == 0 {
		c.chunks = append(c.chunks, make([]T, chunk))
	}
	c.len++
	return c.At(uint32(c.len - 1))
}

// Grown returns an element, after zero ones were appended up to it.
func (c *Column[T]) Grown(i uint32) *T {
	for c.len <= int(i) {
		c.Add()
	}
	return c.At(i)
}
