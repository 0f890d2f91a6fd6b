package slot

import "sync"

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

// Home returns the slot that the key's sub-keys are reckoned from.
func Home(key string) int { return Of(Tag(key, "\x00\x00\x00\x00")) }

// Salts are the names that a sub-key can have, for each slot one.
type Salts string

// Names returns the table. To have it at hand is a few nanoseconds less than
// to ask for it each time.
func Names() Salts { return Salts(salts()) }

// Salt returns the name of the key's sub-key that lies in the slot, four of
// @ and A to O, given the key's Home. It allocates nothing.
//
// CRC16 with the initial value 0 is linear: what the letters add to a tag's
// slot is the same whatever stands before them. So there is one table for all
// keys, and no search. What lost: to try salts until one falls near enough,
// which took 135 ns and reached the middle of a part of the range, not its
// exact place.
func (t Salts) Salt(home, slot int) string {
	at := (home ^ slot) * saltLen
	return string(t[at : at+saltLen])
}
