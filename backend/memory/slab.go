package memory

import "github.com/headgate-go/headgate/algo"

// A record is what one policy keeps of one key, in a run of a stripe's own
// int64s:
//
//	tag << 32 | the key's length
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
	tagWord   = iota // of a dead record: how many words it has
	untilWord        // of a dead record: dead
	header
)

const dead = -1

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
// so that memory comes back without a pause.
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

func nameIn(until int64) uint32 { return uint32(until) & (1<<nameBits - 1) }

// at returns the stripe's words from a record on.
func (m *guarded) at(p place) []int64 { return m.words[p>>segBits][p%segMax:] }

// size returns how many words the record at the head of w has.
func (m *guarded) size(w []int64) int {
	if w[untilWord] == dead {
		return int(w[tagWord])
	}
	return header + wordsOf(m.names[nameIn(w[untilWord])].kind) + keyWords(int(uint32(w[tagWord])))
}

// room returns where n words are free.
func (m *guarded) room(n int) place {
	if len(m.segs) == 0 || m.segs[m.last].used+n > len(m.words[m.last]) {
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
	for i := range m.words {
		if m.words[i] == nil {
			m.words[i], m.last = w, i
			return
		}
	}
	m.last = len(m.segs)
	m.words, m.segs = append(m.words, w), append(m.segs, segment{})
}

// bury marks a record that the index has left as dead, and gives its segment
// back where it was the last that lived.
func (m *guarded) bury(p place) {
	w, i := m.at(p), int(p>>segBits)
	n := m.size(w)
	w[tagWord], w[untilWord] = int64(n), dead
	seg := &m.segs[i]
	if seg.dead += n; seg.dead < seg.used {
		return
	}
	if m.index.count == 0 {
		m.words, m.segs, m.last, m.hand.seg, m.hand.off = nil, nil, 0, 0, 0
		return
	}
	if m.hand.seg == i {
		m.hand.off = 0 // else it would point into the middle of what comes next
	}
	*seg = segment{}
	if i == m.last {
		clear(m.words[i])
	} else {
		m.words[i] = nil
	}
}

// empty moves what lives in a segment to the last one.
func (m *guarded) empty(i int) {
	w := m.words[i][:m.segs[i].used]
	for off := 0; off < len(w); {
		n := m.size(w[off:])
		if w[off+untilWord] != dead {
			to := m.room(n)
			copy(m.at(to), w[off:off+n])
			m.index.move(tagIn(w[off:]), place(i<<segBits|off), to)
		}
		off += n
	}
	m.words[i], m.segs[i] = nil, segment{}
}

func tagIn(w []int64) uint32 { return uint32(w[tagWord] >> 32) }

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

func fewer(s string) (w int64) {
	for i := range len(s) {
		w |= int64(s[i]) << (8 * i)
	}
	return w
}
