package storetest

import (
	"fmt"
	"slices"
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

// settledStates compares what settlements answer with a Peek after them: by less, as much
// and more, repeated, and of a lease that was never made.
func settledStates(p *probe) {
	list := p.list(p.day(100))
	for i, actual := range []int64{0, 1, 40, 41, 90, 130} {
		key := fmt.Sprint("a", i)
		p.passes(key, list, 10)
		lost := p.lease(group(key, list, 40))
		lost.Unresolved = true
		for _, r := range []*reservation{p.reserved(key, list, 40), lost} {
			r.group.Each = slices.Repeat([]backend.State{{Policy: "left over", Limit: -1}}, len(list))
			r.settles(actual)
			for range 2 {
				d, err := r.send(backend.Settle) // the same attempt
				p.must(err == nil && d.Allowed, "a Settle by %d that repeats its attempt said %+v, %v", actual, d, err)
				want := make([]backend.State, len(list))
				p.ask(backend.Peek, backend.Group{Key: key, Policies: list, Cost: 1, Each: want})
				p.must(slices.EqualFunc(r.group.Each, want, p.same), "a Settle by %d filled\n\t%+v\nand a Peek\n\t%+v", actual, r.group.Each, want)
				p.binds(d, r.group.Each)
			}
		}
	}
}

// latelySettled moves the clock to either side of what a late lease and its settlement stay.
func latelySettled(p *probe) {
	p.needsClock()
	list := p.list(p.day(100))
	for _, length := range []time.Duration{time.Minute, time.Hour} {
		stays := max(2*length, 10*time.Minute)
		late := func(key string) *reservation {
			r := p.lease(group(fmt.Sprint(key, length), list, 40))
			r.Length, r.Late = length, true
			r.reserve(40)
			return r
		}
		settled, gone, reset, extended := late("settled"), late("gone"), late("reset"), late("extended")
		p.reset(reset.group.Key, list)
		p.advance(length - tick)
		extended.gives(backend.Extend, nil, "an Extend of a late lease")
		p.advance(stays - length)
		settled.charges(30)
		reset.settle(9, backend.ErrNotHeld)
		p.used(reset.group.Key, list, 0)
		p.advance(tick)
		gone.settle(9, backend.ErrNotHeld)
		extended.charges(10)
		p.advance(stays - 2*tick)
		settled.gives(backend.Settle, nil, "a Settle that repeats its attempt")
		p.advance(tick)
		settled.gives(backend.Settle, backend.ErrNotHeld, "a Settle that repeats its attempt once nothing is kept")
	}
}

// charges settles by n units more than were reserved, and requires that they are charged.
func (r *reservation) charges(n int64) {
	r.p.t.Helper()
	before := r.p.states(r.group.Key, r.group.Policies)
	r.settles(r.group.Cost + n)
	for i, s := range r.p.states(r.group.Key, r.group.Policies) {
		r.p.must(s.Used == before[i].Used+n, "%d units more than reserved were charged as %d", n, s.Used-before[i].Used)
	}
}
