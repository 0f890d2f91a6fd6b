package memory

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// leases are those of a stripe's keys. They leave as the counts do, while others
// call: each Reserve looks at a few.
type leases struct {
	of       map[leaseHash]*lease
	more     map[leaseHash][]charge // of an open lease, the charges of the policies after the first
	peaks    [3]int                 // the most that of, more and resets have held
	labelled []algo.Algorithm       // one of each identity that has a label and was reserved

	// A Reset ends all leases of its key, without a search for them: a lease is of
	// the generation in which it was reserved, and resets has the generation before
	// which the leases of a key have ended. It is needed until the last of them has
	// left.
	generation uint32
	resets     map[hash]reset
	horizon    int64 // no lease stays longer
}

// leaseHash is a lease's ID, with the hash of its key in it: a lease is found by
// its own key only.
type leaseHash [2]uint64

type reset struct {
	generation uint32
	until      int64
}

// lease holds no pointer, as a record: 96 bytes, and 40 of the map.
type lease struct {
	end        int64
	length     uint32 // ms; 0 of a tombstone, which leaves at its end
	generation uint32
	attempt    [2]int64 // that settled it
	first      charge   // of the first policy; zero once it is settled
}

func (l *lease) open() bool { return l.first.id != 0 }

// leaves is when the record leaves, one more length after the end.
func (l *lease) leaves() int64 { return l.end + int64(l.length)*1000 } // mutant: lease-record-leaves

// extend moves the end to one length after now.
func (l *lease) extend(now int64, length time.Duration) {
	l.end, l.length = now+length.Microseconds(), uint32(length.Milliseconds())
}

func halves(id backend.LeaseID) [2]int64 {
	return [2]int64{int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(id[8:]))}
}

// find returns a lease, or nil. One whose record has left is none.
func (s *leases) find(h leaseHash, now int64) *lease {
	if l := s.of[h]; l != nil && now < l.leaves() {
		return l
	}
	return nil
}

// insert keeps a lease with the charges that it was made of.
func (s *leases) insert(h leaseHash, l *lease, more []charge) {
	if s.of == nil {
		s.of, s.more = map[leaseHash]*lease{}, map[leaseHash][]charge{}
	}
	s.of[h], l.generation = l, s.generation
	if len(more) > 0 {
		s.more[h] = more
	}
	s.horizon = max(s.horizon, l.leaves())
}

// charge is what a lease keeps of one policy.
type charge struct {
	id    identity
	units int64 // the estimate
	algo.Charge
	events, period, own int64 // of the algorithm, as numbers returns them
	shared              bool  // the overflow's record was charged
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

// charges returns an open lease's charges, in the order of its policies.
func (s *leases) charges(h leaseHash, l *lease) []charge {
	return append([]charge{l.first}, s.more[h]...)
}

// settle ends a lease: its charges leave, and the attempt that settled it stays.
func (s *leases) settle(h leaseHash, l *lease, attempt [2]int64) {
	delete(s.more, h)
	l.first, l.attempt = charge{}, attempt
}

// reset ends all leases of a key.
func (s *leases) reset(key hash, now int64) {
	if s.horizon <= now {
		return
	}
	if s.resets == nil {
		s.resets = map[hash]reset{}
	}
	s.generation++
	s.resets[key] = reset{s.generation, s.horizon}
}

// wasReset reports whether a key was reset since a lease of it was reserved.
func (s *leases) wasReset(key hash, l *lease) bool {
	r, ok := s.resets[key]
	return ok && int32(l.generation-r.generation) < 0 // mutant: lease-reset
}

// sweep looks at a few leases and resets, from a random one on, and removes those
// that have left.
func (s *leases) sweep(now int64, looks int) {
	s.of, s.more, s.resets = sized(s.of, &s.peaks[0]), sized(s.more, &s.peaks[1]), sized(s.resets, &s.peaks[2])
	left := looks
	for h, l := range s.of {
		if left--; left < 0 {
			break
		}
		if l.leaves() <= now {
			delete(s.of, h)
			delete(s.more, h)
		}
	}
	for key, r := range s.resets {
		if looks--; looks < 0 {
			break
		}
		if r.until <= now {
			delete(s.resets, key)
		}
	}
}

// sized returns a map, or a smaller copy where few are left of the most that it held: a
// map does not shrink, and a walk over it goes over all of its room.
func sized[K comparable, V any](m map[K]V, peak *int) map[K]V {
	if *peak = max(*peak, len(m)); *peak <= fewSlots || len(m) > *peak/4 {
		return m
	}
	*peak = len(m)
	return maps.Collect(maps.All(m))
}
