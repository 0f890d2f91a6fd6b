package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// settlement is one way in which a reservation of 40 of 100 ends, and what stands
// afterwards.
type settlement struct {
	name     string
	length   time.Duration // of the lease
	end      func(p *probe, r *reservation)
	charged  int64 // units that stand at the instant of the Reserve
	recorded int64 // units that are charged at the end
}

var settlements = []settlement{
	{"Twice", time.Minute, func(_ *probe, r *reservation) { r.settles(25); r.notHeld() }, 25, 0},
	{"AtOnce", time.Minute, func(_ *probe, r *reservation) { r.settledAtOnce(25, 25, 25, 25); r.notHeld() }, 25, 0},
	{"AfterCancel", time.Minute, func(_ *probe, r *reservation) { r.settles(0); r.notHeld() }, 0, 0},
	{"AfterEnd", 2 * time.Second, func(p *probe, r *reservation) { p.advance(time.Second); r.settles(25) }, 25, 0},
	{"AfterRecordLeft", 2 * time.Second, func(p *probe, r *reservation) { p.advance(3 * time.Second); r.notHeld() }, 40, 0},
	{"AfterReset", time.Minute, func(p *probe, r *reservation) {
		p.reset(r.group.Key, r.group.Policies)
		p.asNew(r.group.Key, r.group.Policies)
		r.notHeld()
	}, -1, 0},
	{"AfterWindow", time.Hour, func(p *probe, r *reservation) { p.advance(3 * time.Minute); r.settles(25) }, 25, 0},
	{"AboveAfterWindow", time.Hour, func(p *probe, r *reservation) { p.advance(3 * time.Minute); r.settles(55) }, 40, 15},
	{"AboveEstimate", time.Minute, func(_ *probe, r *reservation) { r.settles(55) }, 40, 15},
	{"AboveLimit", time.Minute, func(_ *probe, r *reservation) { r.settles(150) }, 40, 110},
	{"Never", time.Second, func(p *probe, _ *reservation) { p.advance(5 * time.Second) }, 40, 0},
}

// settlesEach ends a reservation in each way, of each algorithm and of three of them.
func settlesEach(p *probe) {
	p.needsOps(backend.Reserve, backend.Settle, backend.Extend, backend.Record)
	p.needsClock()
	several := min(len(p.shape.kinds), 3)
	for i := range p.shape.kinds {
		var list []backend.Policy
		for j := range several {
			list = append(list, p.policy(fmt.Sprint("p", j), i+j, algo.PerMinute(100)))
		}
		list = p.carried(list...)
		for _, s := range settlements {
			s.run(p, fmt.Sprint(s.name, i), list, 5)
		}
	}
}

// run takes some units between the Reserve and its end. It compares the key with one that
// was never reserved, there and in each of the takes that follow, which the oracle judges.
func (s *settlement) run(p *probe, key string, list []backend.Policy, between int64) {
	p.t.Helper()
	plain := key + " as taken"
	p.passes(key, list, 10)
	p.passes(plain, list, 10)
	p.advance(time.Second)
	r := p.lease(group(key, list, 40))
	r.Length, r.group.Receipt = s.length, new(backend.Receipt)
	d, err := r.send(backend.Reserve)
	p.must(err == nil && d.Allowed, "%s: a Reserve said %+v, %v", key, d, err)
	taken := backend.Request{Op: backend.Take, Group: r.group}
	taken.Cost, taken.Receipt = s.charged, &backend.Receipt{At: append([]int64(nil), r.group.Receipt.At...)}
	r.group.Receipt = nil
	if s.charged > 0 {
		p.passes(plain, list, s.charged)
	}
	p.advance(time.Second)
	if between > 0 {
		p.passes(key, list, between)
		p.passes(plain, list, between)
	}
	s.end(p, r)
	if s.charged >= 0 {
		p.ledger.note(&taken, &d)
		if s.recorded > 0 {
			p.ask(backend.Record, group(plain, list, s.recorded))
		}
		p.alike(key, plain, list)
	}
	s.follow(p, key, plain, list)
}

// follow takes of the key, and of the plain one what has to be the same.
func (s *settlement) follow(p *probe, key, plain string, list []backend.Policy) {
	p.t.Helper()
	for range 25 {
		p.advance(time.Duration(p.dice.Int64N(6000)) * time.Millisecond)
		n := 1 + p.dice.Int64N(20)
		d := p.take(key, list, n)
		if s.charged >= 0 {
			like := p.take(plain, list, n)
			p.must(d.Allowed == like.Allowed, "after a settlement a take of %d said %+v, else %+v", n, d, like)
			p.alike(key, plain, list)
		}
	}
}

// fiveReserves reserves 40 of 100 five times at one instant. Two pass, and are settled
// by 25 and 90: 115 are used, and a cost of 1 is denied until enough of them has
// aged.
func fiveReserves(p *probe) {
	p.needsOps(backend.Reserve, backend.Settle)
	p.needsClock()
	for i := range p.shape.kinds {
		list := p.carried(p.policy("api", i, algo.PerMinute(100)))
		p.set(began + int64(i)*time.Hour.Microseconds())
		key, passed := fmt.Sprint("k", i), []*reservation(nil)
		for range 5 {
			r := p.lease(group(key, list, 40))
			d, err := r.send(backend.Reserve)
			p.must(err == nil, "a Reserve: %v", err)
			if d.Allowed {
				passed = append(passed, r)
			}
		}
		p.must(len(passed) == 2, "of five Reserves of 40 of 100 %d passed", len(passed))
		passed[0].settles(25)
		passed[1].settles(90)
		p.used(key, list, 115)
		d := p.denied(key, list, 1)
		p.must(d.Used == 115 && d.Remaining == 0, "115 of 100 are used, and a denial said %+v", d.State)
		p.advance(d.RetryAfter - tick)
		p.denied(key, list, 1)
		p.advance(tick)
		p.passes(key, list, 1)
	}
}
