package memory

import (
	"encoding/binary"
	"maps"
	"time"
	"unique"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// leases are those of a stripe's keys. They leave as the counts do, while others
// call: each Reserve looks at a few.
type leases struct {
	open    map[leaseHash]*lease
	settled map[leaseHash]settlement // and those that were never reserved, and may not be
	peaks   [2]int                   // the most that the maps have held
}

// leaseHash is a lease's ID, with the hash of its key in it: a lease is found by
// its own key only.
type leaseHash [2]uint64

type lease struct {
	end     int64
	key     hash   // of its key's hash
	length  uint32 // ms
	reset   bool   // its key was reset since
	charges []charge
}

// ended reports whether the lease can only be settled.
//
//mutant:ended-not-extended
func (l *lease) ended(now int64) bool { return l.end <= now }

// leaves is when the lease is forgotten, one more length after the end.
//
//mutant:lease-record-leaves
func (l *lease) leaves() int64 { return l.end + int64(l.length)*1000 }

// extend moves the end to one length after now.
func (l *lease) extend(now int64, length time.Duration) {
	l.end, l.length = now+length.Microseconds(), uint32(length.Milliseconds())
}

// charge is what a lease keeps of one policy.
type charge struct {
	id     identity
	units  int64 // the estimate
	shared bool  // the overflow's record was charged
	spared bool  // a shadow that had no room: nothing was charged, and no settle charges it
	algo.Charge
	algorithm unique.Handle[algo.Algorithm] // one of each is kept, whatever the number of leases
}

// settlement stands for a lease that is settled, or may not be reserved any more.
type settlement struct {
	attempt [2]int64 // that settled it
	until   int64
}

func (s settlement) leaves() int64 { return s.until }

func halves(id backend.LeaseID) [2]int64 {
	return [2]int64{int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(id[8:]))}
}

// find returns an open lease, nil where there is none, and its settlement, zero where
// it has none.
func (s *leases) find(h leaseHash, now int64) (*lease, settlement) {
	l, end := s.open[h], s.settled[h]
	if l != nil && l.leaves() <= now {
		l = nil
	}
	if end.until <= now {
		end = settlement{}
	}
	return l, end
}

func (s *leases) insert(h leaseHash, l *lease) {
	if s.open == nil {
		s.open = map[leaseHash]*lease{}
	}
	s.open[h] = l
	//mutant:lease-id-again
	delete(s.settled, h) // of an earlier one, which has left
}

// settle ends a lease, if it is there: its charges leave, and the attempt that settled
// it stays.
func (s *leases) settle(h leaseHash, by settlement) {
	if s.settled == nil {
		s.settled = map[leaseHash]settlement{}
	}
	delete(s.open, h)
	s.settled[h] = by
}

// reset marks all leases of a key. It looks at every lease of the stripe.
func (s *leases) reset(key hash) {
	for _, l := range s.open {
		//mutant:lease-reset
		l.reset = l.reset || l.key == key
	}
}

func (s *leases) sweep(now int64, looks int) {
	s.open = swept(s.open, &s.peaks[0], now, looks)
	s.settled = swept(s.settled, &s.peaks[1], now, looks)
}

// swept looks at a few leases, from a random one on, and removes those that have left.
// It returns a smaller copy where few are left of the most that the map held. A map does
// not shrink, and a walk over it goes over all of its room.
func swept[V interface{ leaves() int64 }](m map[leaseHash]V, peak *int, now int64, looks int) map[leaseHash]V {
	for h, l := range m {
		if looks--; looks < 0 {
			break
		}
		if l.leaves() <= now {
			delete(m, h)
		}
	}
	if *peak = max(*peak, len(m)); *peak <= fewSlots || len(m) > *peak/4 {
		return m
	}
	*peak = len(m)
	return maps.Collect(maps.All(m))
}
