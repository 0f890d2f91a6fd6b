package memory

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// secret keys a hash of texts. It is drawn for a store, and is written to its file: the keys
// themselves are in no file. Without the secret, texts that share a count or a stripe can only
// be found by trying them in this process.
//
// The hash folds products of 64 bits as wyhash does (Wang Yi, 2019). All of its constants are
// secret: by a known one a factor could be made 0, which cancels the other. It takes less
// than hash/maphash, whose seed can't be written down. SipHash-1-3 took 10 ns more per call.
type secret [4]uint64

// The secrets of a store. By one of them a key would cancel a policy of its name.
const (
	ofKeys = iota
	ofPolicies
	secrets
)

const secretBytes = secrets * 4 * 8

func newSecrets() (all [secrets]secret) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // fails never
	return secretsOf(b[:])
}

func secretsOf(b []byte) (all [secrets]secret) {
	for i := range all {
		for j := range all[i] {
			all[i][j] = binary.LittleEndian.Uint64(b)
			b = b[8:]
		}
	}
	return all
}

func appendSecrets(b []byte, all *[secrets]secret) []byte {
	for i := range all {
		for _, n := range all[i] {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	return b
}

// hash returns the hash of a text. Each step takes 16 bytes, and the last one those at the end,
// some of them perhaps for the second time.
func (k *secret) hash(s string) uint64 {
	var a, b uint64
	h, n := k[0], len(s)
	switch {
	case n > 16:
		for rest := s; len(rest) > 16; rest = rest[16:] {
			h = fold(uint64At(rest, 0)^k[1], uint64At(rest, 8)^h)
		}
		a, b = uint64At(s, n-16), uint64At(s, n-8)
	case n >= 8:
		a, b = uint64At(s, 0), uint64At(s, n-8)
	case n >= 4:
		a, b = uint32At(s, 0), uint32At(s, n-4)
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	//mutant:hash-has-length
	return fold(k[3]^uint64(n), fold(a^k[1], b^h)^k[2])
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// The compiler makes one load of either.

func uint64At(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func uint32At(s string, i int) uint64 {
	s = s[i : i+4]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
