package memory

import (
	"math/bits"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// identity is whose count a record is, beside its key. It is a hash of the policy's
// name, the sub-key, the algorithm's identity and whether it is a shadow, above the
// algorithm's kind.
type identity uint64

const (
	maxKind   = 15 // in an identity's lower bits
	ofShadows = 0xD1B54A32D192ED03

	// The bits of a key's hash that choose its stripe. An identity and an ID have zeros there. So
	// the hash of whatever is kept of a key has these bits of the key's.
	placeAt, places = 4, 1 << 12
	placeBits       = (places - 1) << placeAt
)

// identityOf returns the identity of a policy's count. Limits have no part in it, so a
// limit can be changed. The sub-key has one for the overflow, whose records have no key. It
// is rotated, or the XOR with the key's hash would cancel it.
func (s *Store) identityOf(p *backend.Policy, sub string) identity {
	h := s.secrets[ofPolicies].hash(p.Name) ^ p.Algorithm.Hash()
	if sub != "" {
		h ^= bits.RotateLeft64(s.secrets[ofPolicies].hash(sub), 32)
	}
	//mutant:shadow-count-of-its-own
	if p.Shadow {
		h ^= ofShadows
	}
	//mutant:identity-leaves-place
	return identity(h&^(placeBits|maxKind) | uint64(p.Algorithm.Kind()))
}

func (id identity) kind() rule.Kind { return rule.Kind(id & maxKind) }

// hash is that of a key and a sub-key: all sub-keys of a hot key would else lie
// in one stripe. Two keys of one hash would share their counts. With a million keys in the store
// that happens to one new key in 2^44. A hash of 128 bits took a sixth more of the time of
// a call, and a fifth more memory.
type hash uint64

func (s *Store) hash(g *backend.Group) hash {
	h := s.secrets[ofKeys].hash(g.Key)
	if g.Sub != "" {
		h = bits.RotateLeft64(h, 23) ^ s.secrets[ofKeys].hash(g.Sub)
	}
	return hash(h)
}

// stripeAt returns the index of the stripe of a hash: a key's, or one of what is kept of it.
func (s *Store) stripeAt(h hash) int { return h.place() * len(s.stripes) / places }

// place returns the bits of a key's hash that choose its stripe.
func (h hash) place() int { return int(h>>placeAt) % places }

// of returns the hash of what an identity counts of the key, which is not 0.
func (h hash) of(id identity) hash { return max(h^hash(id), 1) }
