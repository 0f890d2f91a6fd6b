package memory

import (
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
	now, err := ks.locked(s)
	for i := range ks {
		ks[i].tellFull()
	}
	if err != nil {
		return err
	}
	r.DecideKeys(now, readings, d)
	return nil
}

// locked decides the request with the stripes of all keys locked, and returns its instant.
// Two requests lock common stripes in the same order, so neither waits for the other for
// ever. The overflow comes after all stripes.
func (ks keys) locked(s *Store) (now int64, err error) {
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
	now = s.clock.underLock(before, &s.stripes[stripes[0]].mu.latest)
	for _, i := range stripes { // the latest of all stripes
		now = s.clock.notBefore(now, &s.stripes[i].mu.latest)
	}
	ks.setNow(now)
	for _, i := range stripes {
		s.tick(&s.stripes[i], now)
	}
	for i := range ks {
		if k := &ks[i]; k.lease != nil {
			//mutant:reserve-of-keys-meets-lease
			if _, err := k.leased(); err != nil {
				return 0, err
			}
		}
	}
	if !ks.reserve() {
		err := ks.share()
		defer s.overflow.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	ks.run()
	return ks[0].now, nil
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

// run looks at all keys, and charges all or none.
//
// A call of several keys is a Take, a Peek or a Reserve: the others have no answer of all
// or nothing.
func (ks keys) run() {
	fits := true
	for i := range ks {
		//mutant:every-key-fits
		fits = ks[i].look(ks[i].looks) && fits
	}
	take := fits && ks[0].op.Charges()
	for i := range ks {
		ks[i].finish(take, ks[i].looks, ks[i].readings)
	}
}
