package memory

import (
	"hash/maphash"
	"math/bits"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// identity is whose count a record is, beside its key: a hash of the policy's
// name, the sub-key and the algorithm's identity, above the algorithm's kind.
// A record keeps 55 bits of the hash, whose seed is secret: of two identities
// of one key one in 2^55 pairs shares a count.
type identity uint64

const (
	kindBits     = 4
	maxKind      = 1<<kindBits - 1
	identityBits = 23                // that a record keeps beside the part in its tag
	unusedBits   = 32 - identityBits // more than kindBits
)

func (s *Store) identityOf(p *backend.Policy, sub string) identity {
	id := p.Algorithm.Identity()
	h := maphash.String(s.seed, p.Name) ^ spread(uint64(id.Period), uint64(id.Buckets)<<kindBits|uint64(id.Kind))
	if id.Label != "" {
		h ^= bits.RotateLeft64(maphash.String(s.seed, id.Label), 16)
	}
	if sub != "" {
		h ^= bits.RotateLeft64(maphash.String(s.seed, sub), 32)
	}
	return identity(h&^(1<<unusedBits-1) | uint64(id.Kind))
}

// spread hashes two numbers: the difference of two policies of one name.
func spread(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9E3779B97F4A7C15, y^0xD1B54A32D192ED03)
	return (hi ^ lo) * 0x9E3779B97F4A7C15
}

func (id identity) kind() algo.Kind { return algo.Kind(id & maxKind) }

// tag returns the part of a record's hash that the table searches by.
func (id identity) tag(hash uint64) uint32 { return uint32(hash) ^ uint32(id>>32) }

// rest returns the bits of the identity that the tag does not have.
func (id identity) rest() int64 { return int64(id >> unusedBits & (1<<identityBits - 1)) }
