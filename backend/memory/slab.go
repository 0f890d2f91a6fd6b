package memory

import (
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
)

// A record is what one policy keeps of one key, in a run of a stripe's own
// int64s:
//
//	tag << 32 | who owns the record | the key's length
//	until << 24 | the name's number
//	the algorithm's words
//	the key's bytes, by eight
//
// There is no pointer in it, so the garbage collector scans none of them, and
// no object, so that there is no header and no rounding up: 48 bytes for a
// TokenBucket of "user:123456". What lost: an object a record in a Go map
// (77 bytes in a prototype, and 1 M objects to mark), and keys as strings
// beside the words (a third cache miss, and 24 bytes).
const (
	tagWord   = iota // of a dead record: how many words it has, and both owners
	untilWord        // read by the sweep too, which owns nothing
	header
)

// The kinds that keep many words have memory of their own, and its number as
// the record's only word.
func wordsOf(k algo.Kind) int {
	switch k {
	case algo.KindFixedWindow, algo.KindTokenBucket:
		return 2
	case algo.KindSlidingWindow:
		return 3
	}
	return 1
}

func keepsMany(k algo.Kind) bool { return wordsOf(k) == 1 }

// place says where a record begins: its segment's number, and which word.
type place uint32

const (
	segBits = 10
	segMax  = 1 << segBits // words of a segment; one longer record has one of its own
	segMin  = 64           // of the first: many stores hold few keys
)

// segment is a run of records. New ones go to the end of the stripe's last
// one; a segment that is half dead is emptied into that as the sweep passes,
// so that memory comes back without a pause. No place in one is used again:
// a hit may have its eyes on what was there.
//
// The words lie apart from what is known of a segment: each call reads where
// they are, and a table of 24 bytes a segment stays in a core's own cache.
type segment struct {
	used int // how many words records have
	dead int // of these: how many are a dead record's
}

// until packs the instant a record is as new at, in ticks of 33 ms rounded up,
// so that a key leaves a little late and never early, and the name's number.
const tick, nameBits = 15, 24

func until(resetAt int64, name uint32) int64 {
	ticks := (min(resetAt, 1<<53) + 1<<tick - 1) >> tick
	return ticks<<nameBits | int64(name)
}

func resetAt(until int64) int64 { return until >> nameBits << tick }

// stay keeps a record that is owned until at least an instant. With a 64th
// of the time to spare, so that a key that is called all the time is not
// written for it on each call: the key leaves late by that much.
func stay(w []int64, at, now int64) {
	if u := w[untilWord]; at > resetAt(u) {
		atomic.StoreInt64(&w[untilWord], until(at+(at-now)/64, nameIn(u)))
	}
}

func nameIn(until int64) uint32 { return uint32(until) & (1<<nameBits - 1) }

// at returns the stripe's words from a record on.
func (m *guarded) at(p place) []int64 { return m.words[p>>segBits][p%segMax:] }

// size returns how many words the record at the head of w has.
func (m *guarded) size(w []int64) int {
	v := atomic.LoadInt64(&w[tagWord])
	if v&dead == dead {
		return int(uint32(v) &^ dead)
	}
	return header + wordsOf(m.names[nameIn(atomic.LoadInt64(&w[untilWord]))].kind) + keyWords(lenIn(v))
}

// head is the first word of a record that nobody owns.
func head(tag uint32, key string) int64 { return int64(tag)<<32 | int64(len(key)) }

func lenIn(head int64) int { return int(uint32(head) &^ dead) }

// room returns where n words are free.
func (m *guarded) room(n int) place {
	if len(m.words) == 0 || m.segs[m.last].used+n > len(m.words[m.last]) {
		m.open(n)
	}
	seg := &m.segs[m.last]
	p := place(m.last<<segBits | seg.used)
	seg.used += n
	return p
}

// open begins a segment with room for n words.
func (m *guarded) open(n int) {
	w := make([]int64, max(n, min(segMin<<min(len(m.segs), segBits), segMax)))
	m.last = slices.IndexFunc(m.words, func(w []int64) bool { return w == nil })
	if m.last < 0 {
		m.last, m.segs = len(m.segs), append(m.segs, segment{})
	}
	m.put(m.last, w)
}

// put makes w the i-th segment, nil to leave it empty. Hits go on reading
// the table that they have.
func (m *guarded) put(i int, w []int64) {
	words := make([][]int64, max(len(m.words), i+1))
	copy(words, m.words)
	words[i] = w
	m.words = words
	m.publish()
}

// kill marks a record that is owned as dead: nobody will own it again.
func kill(w []int64, size int) { atomic.StoreInt64(&w[tagWord], dead|int64(size)) }

// bury kills a record that the index has left, and gives its segment back where
// it was the last that lived.
func (m *guarded) bury(p place) {
	w, i := m.at(p), int(p>>segBits)
	n := m.size(w)
	kill(w, n)
	seg := &m.segs[i]
	if seg.dead += n; seg.dead < seg.used {
		return
	}
	if m.index.count == 0 {
		m.words, m.segs, m.last, m.hand.seg, m.hand.off = nil, nil, 0, 0, 0
		m.publish()
		return
	}
	if m.hand.seg == i {
		m.hand.off = 0 // else it would point into the middle of what comes next
	}
	*seg = segment{}
	m.put(i, nil)
}

// empty moves what lives in a segment to the last one.
func (m *guarded) empty(i int) {
	w := m.words[i][:m.segs[i].used]
	for off := 0; off < len(w); {
		n := m.size(w[off:])
		if atomic.LoadInt64(&w[off])&dead != dead {
			m.move(place(i<<segBits|off), n)
		}
		off += n
	}
	m.segs[i] = segment{}
	m.put(i, nil)
}

// move takes a record of n words to the last segment. Hits that wait for it
// where it was find it dead.
func (m *guarded) move(from place, n int) {
	w, to := m.own(from), m.room(n)
	moved := m.at(to)[:n]
	moved[tagWord] = atomic.LoadInt64(&w[tagWord]) &^ mine
	copy(moved[untilWord:], w[untilWord:])
	m.index.move(tagIn(w), from, to)
	kill(w, n)
}

func tagIn(w []int64) uint32 { return uint32(atomic.LoadInt64(&w[tagWord]) >> 32) }

func keyWords(n int) int { return (n + 7) / 8 }

// putKey writes the key's bytes. The last eight of a key that is longer
// overlap the ones before, so that nothing is compared byte by byte.
func putKey(w []int64, key string) {
	n := len(key)
	for i := 0; i+8 <= n; i += 8 {
		w[i/8] = eight(key[i:])
	}
	if n < 8 {
		w[0] = fewer(key)
	} else if n%8 != 0 {
		w[n/8] = eight(key[n-8:])
	}
}

// isKey reports whether putKey wrote the key, of which the length is known to
// be right.
func isKey(w []int64, key string) bool {
	n := len(key)
	if n < 8 {
		return w[0] == fewer(key)
	}
	for i := 0; i+8 <= n; i += 8 {
		if w[i/8] != eight(key[i:]) {
			return false
		}
	}
	return n%8 == 0 || w[n/8] == eight(key[n-8:])
}

func eight(s string) int64 {
	_ = s[7]
	return int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24 |
		int64(s[4])<<32 | int64(s[5])<<40 | int64(s[6])<<48 | int64(s[7])<<56
}

// fewer is a number for fewer than eight bytes, no other's of that length.
func fewer(s string) int64 {
	n := len(s)
	if n < 4 {
		return int64(s[0]) | int64(s[n/2])<<8 | int64(s[n-1])<<16
	}
	return four(s) | four(s[n-4:])<<32
}

func four(s string) int64 {
	_ = s[3]
	return int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24
}
