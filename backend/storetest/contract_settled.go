package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// repeats settles a lease late, and repeats that for as long as it is remembered.
func repeats(p *probe, list []backend.Policy) {
	p.needsClock()
	r := p.reserved("late", list, 40)
	p.advance(90 * sec) // its lease has ended
	r.settles(10)
	p.advance(r.Length - tick)
	r.gives(backend.Settle, nil, "a Settle that repeats its attempt within one Length")
	p.used("late", list, 10)
	p.advance(tick)
	r.gives(backend.Settle, backend.ErrNotHeld, "a Settle that repeats its attempt after one Length")
}

// tombstones settles unresolved leases, with and without a Reserve before, and again by
// another attempt while the tombstone stays. That would charge twice.
func tombstones(p *probe, list []backend.Policy) {
	p.needsClock()
	for _, length := range []time.Duration{time.Minute, time.Hour} {
		lost := p.lease(group(fmt.Sprint("lost", length), list, 40))
		kept := p.reserved(fmt.Sprint("kept", length), list, 40)
		for _, r := range []*reservation{lost, kept} {
			r.Length, r.Unresolved = length, true
			r.settles(25)
		}
		p.advance(max(2*length, 10*time.Minute) - tick)
		for _, r := range []*reservation{lost, kept} {
			unchanged := p.still(r.group.Key, list)
			r.settle(9, backend.ErrNotHeld)
			unchanged()
		}
	}
}
