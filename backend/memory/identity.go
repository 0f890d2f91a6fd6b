package memory

import (
	"hash/maphash"
	"math/bits"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// identity is whose count a record is, beside its key. It is a hash of the policy's
// name, the sub-key, the algorithm's identity and whether it is a shadow, above the
// algorithm's kind.
type identity uint64

const (
	maxKind   = 15 // in an identity's lower bits
	ofShadows = 0xD1B54A32D192ED03
)

func (s *Store) identityOf(p *backend.Policy, sub string) identity {
	h := maphash.String(s.seeds[0], p.Name) ^ p.Algorithm.Hash()
	if sub != "" {
		h ^= bits.RotateLeft64(maphash.String(s.seeds[0], sub), 32)
	}
	if p.Shadow { // mutant: shadow-count-of-its-own
		h ^= ofShadows
	}
	return identity(h&^maxKind | uint64(p.Algorithm.Kind()))
}

func (id identity) kind() algo.Kind { return algo.Kind(id & maxKind) }

// hash is that of a key and a sub-key: all sub-keys of a hot key would else lie
// in one stripe. The seeds are secret: with a known hash an attacker fills one
// stripe. Two keys of one hash would share their counts, which happens to one
// pair in 2^128.
type hash [2]uint64

func (s *Store) hash(g *backend.Group) hash {
	h := hash{maphash.String(s.seeds[0], g.Key), maphash.String(s.seeds[1], g.Key)}
	if g.Sub != "" {
		h[0] = bits.RotateLeft64(h[0], 23) ^ maphash.String(s.seeds[0], g.Sub)
		h[1] = bits.RotateLeft64(h[1], 23) ^ maphash.String(s.seeds[1], g.Sub)
	}
	return h
}

// stripeAt returns the index of the stripe of a hash.
func (s *Store) stripeAt(h hash) int {
	at, _ := bits.Mul64(h[1], uint64(len(s.stripes)))
	return int(at)
}

// of returns the hash of what an identity counts of the key.
func (h hash) of(id identity) hash { return hash{h[0] ^ uint64(id), h[1]} }
