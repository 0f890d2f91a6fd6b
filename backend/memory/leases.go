package memory

import (
	"encoding/binary"
	"maps"
	"time"
	"unique"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// leases are those of a stripe's keys. They leave as the counts do, while others
// call: each Reserve looks at a few.
type leases struct {
	open    fading[*lease]
	settled fading[settlement] // and those that were never reserved, and may not be
}

// leaseHash is a lease's ID, with the hash of its key in it: a lease is found by
// its own key only.
type leaseHash [2]uint64

// lease is an open one: it was reserved and not settled. It is kept for one more length
// after its end, or longer, in which a settlement still corrects the counts.
type lease struct {
	end     int64
	key     hash   // of its key's hash
	length  uint32 // ms: for how long it is kept after its end
	late    bool
	reset   bool // its key was reset since
	charges []charge
}

// ended reports whether the lease can only be settled.
//
//mutant:ended-not-extended
func (l *lease) ended(now int64) bool { return l.end <= now }

// leaves is when the lease is forgotten.
//
//mutant:lease-record-leaves
func (l *lease) leaves() int64 { return l.end + int64(l.length)*1000 }

// extend moves the end to one length after now.
func (l *lease) extend(now int64, length time.Duration) {
	l.end, l.length = now+length.Microseconds(), uint32((backend.Stays(length, l.late) - length).Milliseconds())
}

// charge is what a lease keeps of one policy.
type charge struct {
	id     identity
	units  int64 // the estimate
	class  *class
	shared *class // whose overflow's record was charged; nil: the key's own
	spared bool   // a shadow that had no room: nothing was charged, and no settle charges it
	rule.Charge
	algorithm unique.Handle[rule.Algorithm] // one of each is kept, whatever the number of leases
}

// settlement stands for a lease that is settled, or may not be reserved any more.
type settlement struct {
	attempt [2]int64 // that settled it
	until   int64
}

func (s settlement) leaves() int64 { return s.until }

// halves returns an ID as two numbers. The slots of an InFlight keep the second one.
// ofLease returns what a lease or a borrower of a key is found by.
func (h hash) ofLease(id backend.LeaseID) leaseHash {
	halves := halves(id)
	//mutant:lease-leaves-place
	return leaseHash{uint64(halves[0])&^placeBits ^ uint64(h), uint64(halves[1])}
}

func halves(id backend.LeaseID) [2]int64 {
	return [2]int64{int64(binary.BigEndian.Uint64(id[:])), int64(binary.BigEndian.Uint64(id[8:]))}
}

// find returns an open lease, nil where there is none, and its settlement, zero where
// it has none.
func (s *leases) find(h leaseHash, now int64) (*lease, settlement) {
	l, end := s.open.kept[h], s.settled.kept[h]
	if l != nil && l.leaves() <= now {
		l = nil
	}
	if end.until <= now {
		end = settlement{}
	}
	return l, end
}

// insert keeps a lease that was charged.
func (s *leases) insert(h leaseHash, l *lease) {
	s.open.put(h, l)
	//mutant:lease-id-again
	delete(s.settled.kept, h) // of an earlier one, which has left
}

// settle ends a lease, if it is there: its charges leave, and the attempt that settled
// it stays.
func (s *leases) settle(h leaseHash, by settlement) {
	delete(s.open.kept, h)
	s.settled.put(h, by)
}

// reset marks all leases of a key. It looks at every lease of the stripe.
func (s *leases) reset(key hash) {
	for _, l := range s.open.kept {
		//mutant:lease-reset
		l.reset = l.reset || l.key == key
	}
}

// sweep looks at a few of both. Each Reserve looks at more leases than it adds, so the maps
// do not grow without bound.
func (s *leases) sweep(now int64, looks int) {
	s.open.sweep(now, looks)
	s.settled.sweep(now, looks)
}

// fading is a map of what leaves at an instant of its own, and is swept by later calls.
type fading[V interface{ leaves() int64 }] struct {
	kept map[leaseHash]V // nil until the first
	peak int             // the most that the map has held
}

// put keeps v in place of what was kept under h.
func (f *fading[V]) put(h leaseHash, v V) {
	if f.kept == nil {
		f.kept = map[leaseHash]V{}
	}
	f.kept[h] = v
}

// sweep looks at a few entries, from a random one on, and removes those that have left.
// A map does not shrink, and a walk over it goes over all of its room. So it is copied once
// few are left of the most that it has held.
func (f *fading[V]) sweep(now int64, looks int) {
	for h, v := range f.kept {
		if looks--; looks < 0 {
			break
		}
		if v.leaves() <= now {
			delete(f.kept, h)
		}
	}
	if f.peak = max(f.peak, len(f.kept)); f.peak > fewSlots && len(f.kept) <= f.peak/4 {
		f.kept, f.peak = maps.Collect(maps.All(f.kept)), len(f.kept)
	}
}
