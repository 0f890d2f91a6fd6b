package memory

import "github.com/headgate-go/headgate/algo"

// A record is the state that one policy keeps of one key: some words in a slot
// of a table.
//
//	tag << 32 | kind << 27 | length of the key
//	until << 24 | marked as idle << 23 | rest of the identity
//	the algorithm's words, or the number of where they are
//	the key's bytes, eight per word; of a long key the number of where they are
//
// It holds no pointer, so the garbage collector scans no record, and it is no
// object, so it has neither header nor padding: 48 bytes for a TokenBucket of
// "user:123456". An object per record in a Go map takes 77.
type record []int64

const (
	headWord = iota
	untilWord
	headerWords
)

const (
	lenBits  = 27
	maxKey   = 1<<lenBits - 1 // bytes
	longKey  = 160            // bytes; a longer key is kept out of line
	idleMark = 1 << identityBits

	tickBits = 15 // until counts ticks of 33 ms
)

// wordsOf returns how many of an algorithm's words a record holds. Kinds with
// many words keep them out of line and their number in the record.
func wordsOf(k algo.Kind) int { return int(recordWords[k&maxKind]) }

func manyWords(k algo.Kind) bool { return wordsOf(k) == 1 }

// recordWords are wordsOf each kind.
var recordWords = func() (ws [maxKind + 1]uint8) {
	for k := range algo.Kind(maxKind + 1) {
		if k.Storage() > 0 {
			ws[k] = uint8(max(k.Words(), 1))
		}
	}
	return ws
}()

// The sizes of records in words: those of the overflow have no key.
const (
	minSize = headerWords + 1
	maxSize = headerWords + 3 + longKey/8
)

func sizeOf(k algo.Kind, keyLen int) int {
	if keyLen > longKey {
		return headerWords + wordsOf(k) + 1
	}
	return headerWords + wordsOf(k) + keyWords(keyLen)
}

func headOf(tag uint32, k algo.Kind, keyLen int) int64 {
	return int64(tag)<<32 | int64(k)<<lenBits | int64(keyLen)
}

func (r record) tag() uint32     { return uint32(r[headWord] >> 32) }
func (r record) kind() algo.Kind { return algo.Kind(r[headWord] >> lenBits & maxKind) }
func (r record) keyLen() int     { return int(r[headWord] & maxKey) }

// rest returns the part of the record's identity that its tag does not have.
func (r record) rest() int64 { return r[untilWord] & (idleMark - 1) }

// until returns the instant from which the record is idle: from then on it
// says no more than no record.
func (r record) until() int64 { return r[untilWord] >> (identityBits + 1) << tickBits }

// idle reports whether the record is idle at an instant.
func (r record) idle(now int64) bool { return r.until() <= now }

// markIdle marks a record that a sweep found idle, and reports whether it was
// marked before. A call that charges an idle record prolongs and unmarks it.
func (r record) markIdle() (again bool) {
	again = r[untilWord]&idleMark != 0
	r[untilWord] |= idleMark
	return again
}

// stay keeps a record until at least an instant, rounded up to whole ticks. It
// adds a 64th of the time, so that few calls of a busy key write the word.
func (r record) stay(at, now int64) {
	if at > r.until() {
		at += (at - now) / 64
		ticks := (min(at, 1<<53) + 1<<tickBits - 1) >> tickBits
		r[untilWord] = ticks<<(identityBits+1) | r.rest()
	}
}

func keyWords(n int) int { return (n + 7) / 8 }

// putKey writes the key's bytes.
func putKey(w []int64, key string) {
	for i := range keyWords(len(key)) {
		w[i] = keyWord(key, i)
	}
}

// isKey reports whether putKey wrote this key, of which the length is right.
func isKey(w []int64, key string) bool {
	for i := range keyWords(len(key)) {
		if w[i] != keyWord(key, i) {
			return false
		}
	}
	return true
}

// keyWord returns the i-th eight bytes of a key. Where the length is no multiple
// of eight, the last eight overlap those before.
func keyWord(key string, i int) (w int64) {
	if len(key) < 8 {
		for j := range len(key) {
			w |= int64(key[j]) << (8 * j)
		}
		return w
	}
	s := key[min(8*i, len(key)-8):]
	_ = s[7]
	return int64(s[0]) | int64(s[1])<<8 | int64(s[2])<<16 | int64(s[3])<<24 |
		int64(s[4])<<32 | int64(s[5])<<40 | int64(s[6])<<48 | int64(s[7])<<56
}
