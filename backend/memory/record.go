package memory

import (
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
)

// A record is what one policy keeps of one key, in a cell of a table:
//
//	tag << 32 | who owns the record | the kind << 27 | the key's length
//	until << 24 | what the tag has not of its name
//	the algorithm's words
//	the key's bytes, by eight; of a long key the number of where they are
//
// There is no pointer in it, so the garbage collector scans none of them, and
// no object, so that there is no header and no rounding up: 48 bytes for a
// TokenBucket of "user:123456". What lost: an object a record in a Go map
// (77 bytes in a prototype, and 1 M objects to mark), keys as strings
// beside the words (a third cache miss, and 24 bytes), and records in the order
// in which they came, with an index of 8 bytes a slot (a second one).
const (
	tagWord   = iota // of a dead record: both owners, and no key
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

// A key is long from where its record would need a table that few others do.
const inline = 160

// The sizes that records have, in words.
const (
	smallest = header + 1 + 1
	largest  = header + 3 + inline/8
)

// sizeOf is how many words a record has.
func sizeOf(k algo.Kind, key int) int {
	if key > inline {
		return header + wordsOf(k) + 1
	}
	return header + wordsOf(k) + keyWords(key)
}

// until packs the instant a record is as new at, in ticks of 33 ms rounded up,
// so that a key leaves a little late and never early, and what the tag has not
// of its name.
const tick = 15

func until(resetAt, rest int64) int64 {
	ticks := (min(resetAt, 1<<53) + 1<<tick - 1) >> tick
	return ticks<<restBits | rest
}

func resetAt(until int64) int64 { return until >> restBits << tick }

func restIn(until int64) int64 { return until & (1<<restBits - 1) }

// stay keeps a record that is owned until at least an instant. With a 64th
// of the time to spare, so that a key that is called all the time is not
// written for it on each call: the key leaves late by that much.
func stay(w []int64, at, now int64) {
	if u := w[untilWord]; at > resetAt(u) {
		atomic.StoreInt64(&w[untilWord], until(at+(at-now)/64, restIn(u)))
	}
}

// head is the first word of a record that nobody owns.
func head(tag uint32, k algo.Kind, key string) int64 {
	return int64(tag)<<32 | int64(k)<<lenBits | int64(len(key))
}

func lenIn(head int64) int { return int(head & longest) }

func kindIn(head int64) algo.Kind { return algo.Kind(uint32(head) &^ dead >> lenBits) }

// kill marks a record that is owned as dead. Nobody owns it again, nor what is
// in its cell until that is another record.
func kill(w []int64) { atomic.StoreInt64(&w[tagWord], dead) }

func tagIn(w []int64) uint32 { return uint32(atomic.LoadInt64(&w[tagWord]) >> 32) }

func keyWords(n int) int { return (n + 7) >> 3 }

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

// isKey reports whether putKey wrote the key there, of which the length is known
// to be right.
func isKey(w []int64, from int, key string) bool {
	n := len(key)
	if n < 8 {
		return w[from] == fewer(key)
	}
	if w[from+(n-1)/8] != eight(key[n-8:]) {
		return false
	}
	for ; len(key) > 8; key = key[8:] {
		if w[from] != eight(key) {
			return false
		}
		from++
	}
	return true
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
