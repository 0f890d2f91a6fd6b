package memory

import (
	"hash/maphash"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// name is what a record is known by beside its key: a hash of its policy's name
// and the sub-key, and the kind, so that two algorithms under one name do not read
// each other's words. Its upper half is part of the record's tag, and of the rest
// 24 bits are in the record. So that knows 56 bits of the hash, by a secret seed:
// two names that are asked for one key are one by a chance of one in 2^56.
type name uint64

const (
	restBits = 24
	kindBits = 3
	_        = uint(1<<kindBits - 1 - algo.KindSlidingLog) // the last kind
)

// nameOf hashes an id; a limiter that is asked on and on has it at hand.
func (s *Store) nameOf(p *backend.Policy, sub string) name {
	type id struct {
		policy, sub string
	}
	k := p.Algorithm.Kind()
	return name(maphash.Comparable(s.seed, id{p.Name, sub}))<<kindBits | name(k)
}

func (n name) kind() algo.Kind { return algo.Kind(n & (1<<kindBits - 1)) }

// tag is the part of the hash of a key that a record is searched by.
func (n name) tag(hash uint64) uint32 { return uint32(hash) ^ uint32(n>>32) }

func (n name) rest() int64 { return int64(n >> (32 - restBits) & (1<<restBits - 1)) }
