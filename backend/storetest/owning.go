package storetest

import (
	"context"
	"math"
	"reflect"
	"slices"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// What is the caller's. Every case looks after these, whatever it is about:
// what else it found might be no more than what follows from them.
const (
	errorsAreZero   = "An error leaves the decision zero."
	requestsAreLeft = "Nothing is written to a request, but to what its Each, Receipt and StoreTime name."
	nothingIsKept   = "Neither the request nor the decision is kept when Do has returned, also where ctx ended first."
)

// send sends a request as a caller does who uses it, and the decision, for
// something else at once.
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

// another is what a request is used for next, spent what a decision is.
func another(list []backend.Policy) backend.Request {
	return backend.Request{Op: backend.Take, Group: backend.Group{Key: "another", Policies: list, Cost: 1}}
}

var spent = backend.Decision{Allowed: true, State: backend.State{Policy: "spent", Used: math.MaxInt64}}

// failsZero meets every error that it can make: send looks at what stands
// beside it.
func failsZero(p *probe) {
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 4)
	gone, leave := context.WithCancel(context.Background())
	leave()
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset, 0} {
		r := backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 11}}
		_, _ = p.send(context.Background(), r)
		_, _ = p.send(gone, r)
	}
	if p.Corrupt != nil {
		p.passes("bad", list, 4)
		p.Corrupt("bad", list)
		p.garbage("bad", list)
	}
	for _, fault := range []func(){p.Refuse, p.LoseReply} { // of a's node, where there are several
		if fault != nil {
			fault()
			_, _ = p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
			p.peek("a", list, 1) // or it would be a row of failures
		}
	}
	p.must(p.Store.Close() == nil, "the store does not close")
	_, err := p.do(another(list))
	p.must(err != nil, "a closed store decides")
}

// leavesRequests asks in every way that there is: send looks at the request.
func leavesRequests(p *probe) {
	list := p.list(algo.PerDay(10))
	costs := make([]int64, len(list))
	for i := range costs {
		costs[i] = int64(3 + i%2)
	}
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Take, backend.Take, backend.Reset} {
		g := backend.Group{Key: "a", Policies: list, Cost: 1}
		p.ask(op, g)
		g.Each = make([]backend.State, len(list))
		p.ask(op, g)
		g.Costs, g.Each = costs, nil
		p.ask(op, g)
		g.Receipt = new(backend.Receipt)
		_, _ = p.do(backend.Request{Op: op, Group: g})
	}
}

// keepsNothing has callers who stay, who leave meanwhile, and who have left,
// and looks whether the store still reads or writes what was theirs.
func keepsNothing(p *probe) {
	const calls = 60
	list := p.list(algo.PerDay(100 * max(1, p.k())))
	passed := int64(0)
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
