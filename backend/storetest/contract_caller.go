package storetest

import (
	"context"
	"math"
	"reflect"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// These three are checked in every case, not only in their own. They are
// reported as themselves: a store that breaks one fails other sentences too,
// and those failures would point at the wrong place.
const (
	errorsAreZero   = "An error leaves the decision zero."
	requestsAreLeft = "Nothing is written to a request, but to what its Each, Receipt and StoreTime name."
	nothingIsKept   = "Neither the request nor the decision is kept when Do has returned, also where ctx ended first."
)

// send sends a request as a caller does that keeps both in a pool: it compares
// the request with a copy, and then overwrites it and the decision.
func (p *probe) send(ctx context.Context, r backend.Request) (backend.Decision, error) {
	p.t.Helper()
	own, before, d := r, r, new(backend.Decision)
	before.Policies, before.Costs = slices.Clone(r.Policies), slices.Clone(r.Costs)
	err := p.Store.Do(ctx, &own, d)
	if !reflect.DeepEqual(own, before) {
		p.breaks(requestsAreLeft, "a request was\n\t%+v\nand is\n\t%+v", before, own)
	}
	answer := *d
	if err != nil && answer != (backend.Decision{}) {
		p.breaks(errorsAreZero, "beside the error %v stands %+v", err, answer)
	}
	own, *d = another(r.Policies), spent
	return answer, err
}

// another is what a request is used for next, spent what a decision is. Both are
// valid, so that a store that reads them late counts and does not fail.
func another(list []backend.Policy) backend.Request { return request(backend.Take, "another", list, 1) }

var spent = backend.Decision{Allowed: true, State: backend.State{Policy: "spent", Used: math.MaxInt64}}

// failsZero causes every error that it can, and send looks at the decision.
func failsZero(p *probe) {
	list := p.list(p.day(10))
	p.passes("a", list, 4)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, op := range append([]backend.Op{0}, asked...) {
		_, _ = p.send(context.Background(), request(op, "a", list, 11))
		_, _ = p.send(gone, request(op, "a", list, 11))
	}
	if p.Corrupt != nil {
		p.passes("bad", list, 4)
		p.Corrupt("bad", list)
		p.garbage("bad", list)
	}
	for _, fault := range []func(){p.Refuse, p.LoseReply} {
		if fault != nil {
			fault()
			_, _ = p.do(request(backend.Take, "a", list, 1))
			p.peek("a", list, 1) // a success between the faults, or a circuit would open
		}
	}
	p.must(p.Store.Close() == nil, "the store does not close")
	_, err := p.do(another(list))
	p.must(err != nil, "a closed store decides")
}

// leavesRequests sends every combination of operation, costs, states and
// receipt, a take until each is denied. A store that normalizes a request in
// place, for example by filling Costs, changes what the caller sends next.
func leavesRequests(p *probe) {
	list, take := p.list(p.day(12)), backend.Take
	for _, op := range []backend.Op{take, backend.Peek, take, take, take, backend.Reset} {
		g := group("a", list, 1)
		p.ask(op, g)
		g.Each = make([]backend.State, len(list))
		p.ask(op, g)
		g.Costs, g.Each = ramp(list), nil
		p.ask(op, g)
		g.Receipt = new(backend.Receipt)
		p.ask(op, g)
	}
}

// keepsNothing calls with contexts that last, that end meanwhile, and that have
// ended. A store that answers on another goroutine still holds the request of a
// caller that left: it then charges 50 units, charges the key "another", or
// writes a decision that belongs to somebody else.
func keepsNothing(p *probe) {
	const calls = 60
	list, passed := p.list(p.day(100)), int64(0)
	var decisions [calls]backend.Decision
	for i := range decisions {
		ctx, leave := context.WithCancel(context.Background())
		switch i % 3 {
		case 1:
			go leave()
		case 2:
			leave()
		}
		d, r := &decisions[i], another(list)
		r.Key, r.Costs = "a", slices.Repeat([]int64{1}, len(list))
		if p.Store.Do(ctx, &r, d) == nil && d.Allowed {
			passed++
		}
		leave()
		for j := range r.Costs {
			r.Costs[j] = 50
		}
		r, *d = another(list), spent
	}
	for _, s := range p.states("a", list) {
		p.must(s.Used >= passed && s.Used <= calls, "%d calls of 1 unit took %d, %d passed", calls, s.Used, passed)
	}
	p.used("another", list, 0)
	for i := range decisions {
		p.must(decisions[i] == spent, "a decision was written after its call: %+v", decisions[i])
	}
}
