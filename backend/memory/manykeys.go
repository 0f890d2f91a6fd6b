package memory

import (
	"cmp"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// keys is a request of several keys: a call of each. The stripes of all are locked,
// each once and in ascending order, before any is looked at. All are looked at before
// any is charged.
type keys []oneKey

type oneKey struct {
	call
	looks    []look
	readings []backend.Reading
}

// decideAll decides a request of several keys.
//
// The steps are those of one key. Each step is done for all keys before the next one
// begins.
func (s *Store) decideAll(r *backend.Request, d *backend.Decision) error {
	ks, readings := make(keys, 1+len(r.And)), make([][]backend.Reading, 1+len(r.And))
	for i := range ks {
		k, g := &ks[i], r.GroupAt(i)
		k.looks, readings[i] = make([]look, len(g.Policies)), make([]backend.Reading, len(g.Policies))
		k.readings = readings[i]
		if err := s.begin(&k.call, r.Op, g, k.looks); err != nil {
			return err
		}
		k.lease = g.Lease
	}
	err := ks.locked(s, r, readings)
	for i := range ks {
		ks[i].tellFull()
	}
	switch now := ks[0].now; {
	case err != nil:
	case !r.Op.Held():
		r.DecideKeys(now, readings, d)
	default:
		if r.Each != nil {
			r.Look().Decide(now, readings[0], d)
		}
		d.Allowed = true
	}
	return err
}

// locked decides the request with the stripes of all keys locked.
// Two requests lock common stripes in the same order, so neither waits for the other for
// ever. The overflow comes after all stripes.
func (ks keys) locked(s *Store, r *backend.Request, readings [][]backend.Reading) error {
	stripes := make([]int, 0, len(ks))
	for i := range ks {
		stripes = append(stripes, ks[i].stripeAt())
	}
	slices.Sort(stripes)
	//mutant:stripe-locked-once
	stripes = slices.Compact(stripes)
	before := s.clock.beforeLock()
	for _, i := range stripes {
		s.stripes[i].mu.Lock()
		defer s.stripes[i].mu.Unlock() // Options.Now may panic
	}
	now := s.clock.underLock(before, &s.stripes[stripes[0]].mu.latest)
	for _, i := range stripes { // the latest of all stripes
		now = s.clock.notBefore(now, &s.stripes[i].mu.latest)
	}
	ks.setNow(now)
	for _, i := range stripes {
		s.tick(&s.stripes[i], now)
	}
	if r.Op.Held() {
		_, first := r.Alternative(0)
		return ks.settle(first)
	}
	return ks.first(s, r, readings)
}

// first decides one alternative after the other, until one has room. It clears the readings of
// those that are not decided.
func (ks keys) first(s *Store, r *backend.Request, readings [][]backend.Reading) (err error) {
	some := false
	for from, to := range r.Alternatives() {
		fits, e := ks[from:to].decide(s)
		if some = some || e == nil; e != nil {
			clear(readings[from:to])
		}
		err = cmp.Or(err, e)
		switch {
		//mutant:first-that-fits
		case fits:
			clear(readings[to:])
			return nil
		//mutant:memory-alternative-stops
		case e != nil && (r.GroupAt(from).Stops || !backend.Undecided(e)):
			return e
		}
	}
	if some {
		return nil
	}
	return err
}

// decide decides the keys of one alternative, and reports whether it has room. One that has none
// is as a request of its own that is denied.
func (ks keys) decide(s *Store) (fits bool, err error) {
	for i := range ks {
		if k := &ks[i]; k.lease != nil {
			//mutant:reserve-of-keys-meets-lease
			if _, err := k.leased(); err != nil {
				return false, err
			}
		}
	}
	if !ks.reserve() {
		err := ks.share()
		defer s.overflow.mu.Unlock()
		if err != nil {
			return false, err
		}
	}
	return ks.run(), nil
}

// settle ends the unresolved leases of a request of alternatives, of which one is held at most.
// The others leave tombstones. If none is held, what was used is recorded of the keys before
// first, which are those of the first alternative. So these come last.
func (ks keys) settle(first int) (err error) {
	found := false
	for i := len(ks) - 1; i >= 0; i-- {
		k := &ks[i]
		switch done, e := k.settle(); {
		case done:
			found, err = true, cmp.Or(err, e)
		//mutant:one-alternative-recorded
		case i >= first || found:
			k.stripe.mu.leases.settle(k.hashOf(k.lease.ID), k.settlement(false))
		default:
			k.recordInstead()
			err = cmp.Or(err, k.counted(k.looks, k.readings))
		}
	}
	if err == nil && ks[0].Each != nil {
		err = ks[0].left(ks[0].looks, ks[0].readings)
	}
	return err
}

// setNow makes now the instant of all, and no later instant that their stripes have seen an
// earlier one.
func (ks keys) setNow(now int64) {
	for i := range ks {
		k := &ks[i]
		k.now = k.store.clock.notBefore(now, &k.stripe.mu.latest)
	}
}

// reserve finds the records of all keys, and reports whether there is room for those
// that are missing. The search for room of one key may remove another's idle record,
// so that it looks until none is missing that was not.
func (ks keys) reserve() bool {
	n := 0 // records, at most, that one stripe needs room for
	for again := true; again; {
		again = false
		for i := range ks {
			k := &ks[i]
			before := k.reserved
			if !k.reserve(k.looks) {
				return false
			}
			if more := k.reserved - before; more > 0 {
				n += more
				k.stripe.mu.records.grow(n)
				again = true
			}
		}
	}
	return true
}

// release gives back the room that was reserved.
func (ks keys) release() {
	for i := range ks {
		ks[i].unreserve(ks[i].looks)
	}
}

// run looks at all keys, and charges all or none. It reports whether all have room.
//
// A call of several keys is a Take, a Peek or a Reserve: the others have no answer of all
// or nothing.
func (ks keys) run() (fits bool) {
	fits = true
	for i := range ks {
		//mutant:every-key-fits
		fits = ks[i].look(ks[i].looks) && fits
	}
	take := fits && ks[0].op.Charges()
	for i := range ks {
		ks[i].finish(take, ks[i].looks, ks[i].readings)
	}
	return fits
}
