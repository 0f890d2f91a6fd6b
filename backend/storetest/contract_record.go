package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

func records(p *probe) {
	p.needsOps(backend.Record)
	list := p.list(p.day(100))
	p.passes("a", list, 90)
	d := p.ask(backend.Record, group("a", list, 150))
	p.must(d.Allowed && d.RetryAfter == 0 && d.Used == 240 && d.Remaining == 0, "a Record of 150 on 90 of 100 said %+v", d)
	p.used("a", list, 240)
	longest := time.Duration(0)
	for _, left := range p.stored() {
		longest = max(longest, left)
	}
	p.must(p.Expiries == nil || longest >= d.ResetAfter, "what counts for %v is held for %v", d.ResetAfter, longest)
	p.denied("a", list, 1)
	p.ask(backend.Record, group("new", list, 3))
	p.passes("as taken", list, 3)
	p.alike("new", "as taken", list)
	for i := range list {
		one := list[i : i+1]
		most := one[0].Algorithm.Kind().MaxLimit()
		for range 3 {
			p.ask(backend.Record, group("saturated", one, most))
		}
		p.used("saturated", one, 2*most)
	}
}

func grantsAtMost(p *probe) {
	p.needsOps(backend.AtMost)
	list := p.list(p.day(10))
	for _, c := range []struct{ cost, granted, used int64 }{{4, 4, 4}, {5, 5, 9}, {7, 1, 10}} {
		d := p.ask(backend.AtMost, group("a", list, c.cost))
		p.must(d.Allowed && d.Granted == c.granted, "an AtMost of %d granted %+v", c.cost, d)
		p.used("a", list, c.used)
	}
	unchanged := p.still("a", list)
	d := p.ask(backend.AtMost, group("a", list, 7))
	p.must(!d.Allowed && d.Granted == 0 && d.RetryAfter > 0, "an AtMost without room said %+v", d)
	unchanged()
	d = p.ask(backend.AtMost, group("b", list, 1000))
	p.must(d.Allowed && d.Granted == 10, "an AtMost of more than the limit said %+v", d)
	for i := range p.shape.kinds {
		narrow := p.carried(join([]backend.Policy{p.policy("narrow", i, p.day(3))}, list)...)
		d = p.ask(backend.AtMost, group("narrow", narrow, 7))
		p.must(d.Granted == 3 || i > 0, "an AtMost of two policies granted %d", d.Granted)
		p.reset("narrow", narrow)
	}
}

func holdsSlots(p *probe) {
	p.needsOps(backend.Reserve, backend.Settle, backend.Extend)
	running := p.carried(policy("running", algo.InFlight(2)))
	list := p.carried(join(running, p.list(p.day(100)))...)
	for _, op := range []backend.Op{backend.Take, backend.AtMost, backend.Record} {
		var invalid *backend.InvalidError
		_, err := p.send(context.Background(), request(op, "a", list, 1))
		unsupported := errors.Is(err, backend.ErrUnsupported) && !p.Store.Capabilities().Ops.Has(op)
		p.must(unsupported || errors.As(err, &invalid), "a %v of an InFlight policy: %v", op, err)
	}
	p.asNew("a", list)
	first, second := p.reserved("a", list, 1), p.reserved("a", list, 1)
	p.used("a", list, 2)
	d := p.noSlot(list)
	p.must(p.SetNow == nil || d.RetryAfter == time.Minute, "RetryAfter of a slot is %v", d.RetryAfter)
	first.settles(1)
	p.used("a", running, 1)
	third := p.reserved("a", list, 1)
	p.noSlot(list)
	third.settles(0)
	p.used("a", running, 1)
	p.needsClock()
	p.advance(time.Second)
	second.gives(backend.Extend, nil, "an Extend")
	p.advance(time.Minute - tick)
	p.used("a", running, 1)
	p.advance(tick)
	p.asNew("a", running)
	p.used("a", list[1:], 2)
	second.settles(0)
	p.used("a", list[1:], 1)
}

// noSlot requires that the key has no slot left, and that nothing is charged.
func (p *probe) noSlot(list []backend.Policy) backend.Decision {
	p.t.Helper()
	unchanged := p.still("a", list)
	d, err := p.lease(group("a", list, 1)).send(backend.Reserve)
	p.must(err == nil && !d.Allowed && d.Policy == "running", "a Reserve without a slot said %+v, %v", d, err)
	unchanged()
	return d
}
