package slot

import (
	"strconv"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// saltLen is how many letters a salt has. Of each, four bits are free, and the
// sixteen of them reach every slot four times.
const saltLen = 4

// salts holds the letters for each slot, one after the other. It is made where
// it is first wanted, in about a millisecond.
var salts = sync.OnceValue(func() string {
	table := make([]byte, Count*saltLen)
	for v := 1<<16 - 1; v >= 0; v-- {
		salt := [saltLen]byte{0x40 | byte(v>>12), 0x40 | byte(v>>8&15), 0x40 | byte(v>>4&15), 0x40 | byte(v&15)}
		copy(table[Of(string(salt[:]))*saltLen:], salt[:])
	}
	return string(table)
})

// Salts are the names that a key's sub-keys can have, one for each slot, where
// the key is spread over a certain number of sub-keys. A name begins with that
// number, since a share of another number of sub-keys is another count.
type Salts struct {
	number string
	table  string // the names, one after the other
}

var tables sync.Map // of *Salts by number

// Names returns the names of the sub-keys of a key that is spread over k. Its
// table of some 100 KB is made where the number is first wanted, and kept.
func Names(k int) *Salts {
	if t, ok := tables.Load(k); ok {
		return t.(*Salts)
	}
	number := strconv.Itoa(k)
	table := make([]byte, 0, Count*(len(number)+saltLen))
	for at := 0; at < Count*saltLen; at += saltLen {
		table = append(append(table, number...), salts()[at:at+saltLen]...)
	}
	t, _ := tables.LoadOrStore(k, &Salts{number, string(table)})
	return t.(*Salts)
}

// Home returns the slot that the key's sub-keys are reckoned from.
func (t *Salts) Home(key string) int { return Of(Tag(key, t.number+"\x00\x00\x00\x00")) }

// Name returns the name of the key's sub-key that lies in the slot. It has the number of
// sub-keys and four of @ and A to O, given the key's Home. It allocates nothing.
//
// CRC16 with the initial value 0 is linear: what the letters add to a tag's
// slot is the same whatever stands before them. So there is one table for all
// keys, and no search. Rejected: trying salts until one falls near enough. That took 135
// ns and reached the middle of a part of the range, not its exact place.
func (t *Salts) Name(home, slot int) string {
	size := len(t.number) + saltLen
	at := (home ^ slot) * size
	return t.table[at : at+size]
}

// Subs are the names of a key's sub-keys.
type Subs struct {
	salts           *Salts
	home, offset, n int
}

// SubsOf returns the names of the n sub-keys of a key. Every process computes the same.
func SubsOf(key string, n int) Subs {
	t := Names(n)
	return Subs{t, t.Home(key), int(xxhash.Sum64String(key) % Count), n}
}

// Name returns the name of the i-th sub-key. Its slot is i n-ths of the range from an offset
// that the key's hash gives. Points at equal distances put as many on a node as its part of
// the range holds, or one more, for every key.
func (s Subs) Name(i int) string {
	return s.salts.Name(s.home, (s.offset+i*Count/s.n)%Count)
}

// Index returns the index of the sub-key with a name, -1 if none has it.
func (s Subs) Index(name string) int {
	for i := range s.n {
		if s.Name(i) == name {
			return i
		}
	}
	return -1
}
