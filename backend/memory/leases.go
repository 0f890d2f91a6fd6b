package memory

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// leases are those of a stripe's keys. Their records lie in a table of their own,
// which holds no pointer either: 96 bytes for a lease of one policy. They leave as
// the counts do, while others call: each Reserve looks at a few.
type leases struct {
	table     *table // nil: none
	outOfLine outOfLine
	hand      int              // where the sweep goes on
	labelled  []algo.Algorithm // one of each identity that has a label and was reserved

	// A Reset ends all leases of its key, without a search for them: a lease is of
	// the generation in which it was reserved, and resets has the generation before
	// which the leases of a key have ended. It is needed until the last of them has
	// left.
	generation uint32
	resets     map[uint64]reset // by the key's hash
	horizon    int64            // no lease stays longer
}

type reset struct {
	generation uint32
	until      int64
}

// A lease is a record:
//
//	the ID, whose first half is the record's tag too
//	the hash of key and sub-key
//	the end, or for a tombstone when it leaves
//	generation << 32 | state << 30 | length in ms
//	the charge of one policy, or those of several as the number of where they are;
//	once it is settled the attempt that settled it
type lease []int64

const (
	idWord      = 0
	keyWordOf   = 2
	endWord     = 3
	infoWord    = 4
	chargeWords = 7
	chargesFrom = 5
	leaseSize   = chargesFrom + chargeWords
)

const (
	lengthBits = 27
	stateShift = 28
	manyBit    = 1 << 27 // the charges are out of line
)

// The states of a lease.
const (
	open int64 = iota
	settled
	tombstone
)

func (l lease) state() int64        { return l[infoWord] >> stateShift & 3 }
func (l lease) many() bool          { return l[infoWord]&manyBit != 0 }
func (l lease) generation() uint32  { return uint32(l[infoWord] >> 32) }
func (l lease) length() int64       { return l[infoWord] & (1<<lengthBits - 1) * 1000 }
func (l lease) is(id [2]int64) bool { return l[0] == id[0] && l[1] == id[1] }
func (l lease) attempt() [2]int64   { return [2]int64{l[chargesFrom], l[chargesFrom+1]} }
func (l lease) setState(state int64) {
	l[infoWord] = l[infoWord]&^(3<<stateShift|manyBit) | state<<stateShift
}
func (l lease) setLength(d time.Duration) {
	l[infoWord] = l[infoWord]&^(1<<lengthBits-1) | d.Milliseconds()
}

// gone reports whether the record has left.
func (l lease) gone(now int64) bool {
	if l.state() == tombstone {
		return l[endWord] <= now
	}
	return l[endWord]+l.length() <= now // mutant: lease-record-leaves
}

func halves(id backend.LeaseID) [2]int64 {
	return [2]int64{int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(id[8:]))}
}

// find returns a key's lease, or nil. One whose record has left is none.
func (s *leases) find(id [2]int64, hash uint64, now int64) lease {
	if s.table == nil {
		return nil
	}
	t, tag := s.table, uint32(id[0]>>32)
	for g := t.home(tag); ; g = t.following(g) {
		for set := matches(t.controls(g), controlOf(tag)); set != 0; set &= set - 1 {
			l := lease(t.at(g*groupSlots + firstOf(set)))
			if l.is(id) && l[keyWordOf] == int64(hash) && !l.gone(now) {
				return l
			}
		}
		if matches(t.controls(g), empty) != 0 {
			return nil
		}
	}
}

// insert makes an open lease without charges, which ends one length after now.
func (s *leases) insert(id [2]int64, hash uint64, now int64, length time.Duration) lease {
	if s.table == nil {
		s.table = newTable(leaseSize, 1)
	} else if s.table.full() {
		s.table = s.table.resized(s.table.live + 1)
	}
	l := lease(s.table.insert(uint32(id[0] >> 32)))
	l[idWord], l[idWord+1], l[keyWordOf], l[endWord] = id[0], id[1], int64(hash), now+length.Microseconds()
	l[infoWord] = int64(s.generation)<<32 | length.Milliseconds()
	s.horizon = max(s.horizon, l[endWord]+length.Microseconds())
	return l
}

// charge is what a lease keeps of one policy.
type charge struct {
	id    identity
	units int64 // the estimate
	algo.Charge
	events, period, own int64 // of the algorithm, as numbersOf returns them
	shared              bool  // the overflow's record was charged
}

// sharedBit stands above the units of a charge, which are at most 2^36.
const sharedBit = 1 << 40

func (c *charge) put(w []int64) {
	units := c.units
	if c.shared {
		units |= sharedBit
	}
	copy(w, []int64{int64(c.id), units, c.At, c.Level, c.events, c.period, c.own})
}

func chargeOf(w []int64) (c charge) {
	c.id, c.units, c.At, c.Level = identity(w[0]), w[1]&^sharedBit, w[2], w[3]
	c.events, c.period, c.own, c.shared = w[4], w[5], w[6], w[1]&sharedBit != 0
	return c
}

// byIndex stands for the limit of an algorithm that is kept in labelled.
const byIndex = -1

// numbers takes what a settlement needs of an algorithm: the rate and the burst of a
// TokenBucket, the index in labelled of one with a label, of the others what their
// identity says.
func (s *leases) numbers(c *charge, a *algo.Algorithm) {
	id := a.Identity()
	c.period, c.own = id.Period, id.Buckets
	switch {
	case id.Kind == algo.KindTokenBucket:
		c.events, c.period, c.own = a.Limit().Events, a.Limit().Period.Microseconds(), a.Max()
	case id.Label != "":
		i := slices.IndexFunc(s.labelled, func(b algo.Algorithm) bool { return b.Identity() == id })
		if i < 0 {
			i, s.labelled = len(s.labelled), append(s.labelled, *a)
		}
		c.events, c.own = byIndex, int64(i)
	}
}

func (s *leases) algorithm(c *charge) algo.Algorithm {
	switch k := c.id.kind(); {
	case k == algo.KindTokenBucket:
		return algo.TokenBucket(algo.Per(c.events, time.Duration(c.period)*time.Microsecond), c.own)
	case c.events == byIndex:
		return s.labelled[c.own]
	default:
		return algo.Widest(algo.Identity{Kind: k, Period: c.period, Buckets: c.own})
	}
}

// charges returns the words of a lease's charges, chargeWords per policy.
func (s *leases) charges(l lease) []int64 {
	if l.many() {
		return s.outOfLine.words[l[chargesFrom]]
	}
	return l[chargesFrom:]
}

// room gives a lease room for the charges of n policies.
func (s *leases) room(l lease, n int) []int64 {
	if n == 1 {
		return l[chargesFrom:]
	}
	words := make([]int64, n*chargeWords)
	l[infoWord] |= manyBit
	l[chargesFrom] = s.outOfLine.add(words)
	return words
}

// settle ends a lease: its charges leave, and the attempt takes their place.
func (s *leases) settle(l lease, state int64, attempt [2]int64) {
	if l.many() {
		s.outOfLine.remove(l[chargesFrom])
	}
	l.setState(state)
	l[chargesFrom], l[chargesFrom+1] = attempt[0], attempt[1]
}

// reset ends all leases of a key.
func (s *leases) reset(hash uint64, now int64) {
	if s.table == nil || s.horizon <= now {
		return
	}
	if s.resets == nil {
		s.resets = map[uint64]reset{}
	}
	s.generation++
	s.resets[hash] = reset{s.generation, s.horizon}
}

// wasReset reports whether the lease's key was reset since it was reserved.
func (s *leases) wasReset(l lease) bool {
	r, ok := s.resets[uint64(l[keyWordOf])]
	return ok && int32(l.generation()-r.generation) < 0 // mutant: lease-reset
}

// sweep looks at the next few leases and removes those whose records have left. It
// looks at as many resets.
func (s *leases) sweep(now int64, looks int) {
	for range looks * 4 { // slots, of which some are free
		if s.table == nil || looks == 0 {
			break
		}
		if s.hand >= s.table.slots() {
			s.hand = 0
		}
		slot := s.table.visited(s.hand)
		s.hand++
		if s.table.control(slot) >= inUse {
			looks--
			if l := lease(s.table.at(slot)); l.gone(now) {
				s.remove(l, slot)
			}
		}
	}
	for hash, r := range s.resets {
		if looks--; r.until <= now {
			delete(s.resets, hash)
		}
		if looks < 0 {
			break
		}
	}
}

func (s *leases) remove(l lease, slot int) {
	if l.many() {
		s.outOfLine.remove(l[chargesFrom])
	}
	s.table.remove(slot)
	if s.table.live == 0 {
		*s = leases{generation: s.generation, horizon: s.horizon, resets: s.resets}
	} else if s.table.sparse() {
		s.table = s.table.resized(s.table.live)
	}
}
