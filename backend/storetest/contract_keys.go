package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// several is the number of keys of most requests.
const several = 3

// all returns a request of these keys, each with states. It skips the
// case where the store decides fewer keys at once.
func (p *probe) all(op backend.Op, groups ...backend.Group) backend.Request {
	p.t.Helper()
	if c := p.Store.Capabilities(); c.Keys < len(groups) {
		p.t.Skipf("the store decides %d keys at once", c.Keys)
	}
	for i := range groups {
		groups[i].Each = make([]backend.State, len(groups[i].Policies))
	}
	return backend.Request{Op: op, Group: groups[0], And: groups[1:]}
}

// leases makes the request one under a lease for each group. Their IDs begin with the first one's.
func leases(r *backend.Request, l backend.Lease) {
	for i := range 1 + len(r.And) {
		own := l
		own.ID = idOf(l.ID, i)
		r.GroupAt(i).Lease = &own
	}
}

// idOf returns the ID of the lease of the i-th group.
func idOf(first backend.LeaseID, i int) backend.LeaseID {
	first[len(first)-1] ^= byte(i)
	return first
}

// requestOn returns a request on a lease.
func requestOn(op backend.Op, g backend.Group, l *backend.Lease) backend.Request {
	g.Lease = l
	return backend.Request{Op: op, Group: g}
}

// askAll sends a request of several keys that the store has to decide, and looks at what
// it writes for each.
func (p *probe) askAll(op backend.Op, groups ...backend.Group) backend.Decision {
	p.t.Helper()
	d, err := p.do(p.all(op, groups...))
	if p.Cached && err == nil && op == backend.Take && !d.Allowed && d.Source == backend.FromDenyCache {
		p.must(d.Known == backend.Estimated && d.Key == groups[d.At].Key, "a known denial of several keys: %+v", d)
		return d
	}
	p.must(err == nil && d.Source == backend.FromStore && d.Err == nil && d.Known == backend.Exact,
		"a %v of %d keys: %+v, %v", op, len(groups), d, err)
	bound := false
	for n, g := range groups {
		for i, s := range g.Each {
			p.must(s.Policy == g.Policies[i].Name && s.Known != backend.NotCounted, "policy %d of key %q has the state %+v", i, g.Key, s)
			p.must(s.Delay == 0 || d.Allowed || !op.Charges(), "of key %q nothing was charged, and it has a Delay: %+v", g.Key, s)
			bound = bound || s == d.State && g.Key == d.Key && n == d.At
		}
	}
	p.must(bound, "the state that binds, of key %q, is none of those: %+v", d.Key, d.State)
	return d
}

// allOrNothing spends each key in turn, with keys in one request before and behind
// it. Then it denies a request with keys that are not stored yet.
func allOrNothing(p *probe) {
	list := p.list(p.day(10))
	for spent := range several {
		key := func(i int) string { return fmt.Sprint("key ", spent, " ", i) }
		ask := func(op backend.Op, n int64) backend.Decision {
			var gs []backend.Group
			for i := range several {
				gs = append(gs, group(key(i), list, n))
			}
			return p.askAll(op, gs...)
		}
		p.must(ask(backend.Take, 4).Allowed && ask(backend.Peek, 6).Allowed, "no room for what fits")
		for i := range several {
			p.used(key(i), list, 4)
		}
		p.passes(key(spent), list, 5)
		stored := p.stored()
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Take} {
			d := ask(op, 2)
			p.must(!d.Allowed && d.Key == key(spent) && d.RetryAfter > 0,
				"a spent key among others said %+v", d)
		}
		p.storedLess(stored)
		d := ask(backend.Take, 1)
		p.must(d.Allowed && d.Remaining == 0 && d.Key == key(spent), "the last unit said %+v", d)
		p.used(key(spent), list, 10)
		p.used(key((spent+1)%several), list, 5)
		p.used(key((spent+2)%several), list, 5)
	}
	p.fill("spent", list)
	stored := p.stored()
	d := p.askAll(backend.Take, group("fresh", list, 1), group("spent", list, 1), group("fresher", list, 1))
	p.must(!d.Allowed, "a spent key among new ones passed")
	p.storedLess(stored)
	p.asNew("fresh", list)
	p.asNew("fresher", list)
	p.queueBeside("spent", list)
	p.crowdOfKeys(list)
}

// queueBeside denies a call for a spent key, beside a queue that would delay it.
func (p *probe) queueBeside(spent string, list []backend.Policy) {
	queue := p.carried(p.queue(false))
	p.passes("queue", queue, 1)
	d := p.askAll(backend.Take, group("queue", queue, 2), group(spent, list, 1))
	p.must(!d.Allowed, "a spent key passed beside a queue")
}

// crowdOfKeys takes of keys in different orders from many goroutines, at one of which
// another caller takes too.
func (p *probe) crowdOfKeys(list []backend.Policy) {
	var passed, alone atomic.Int64
	together(crowd, func(c int, _ *rand.Rand) {
		for i := range 5 {
			a, b, d := fmt.Sprint("crowd", c%3), fmt.Sprint("crowd", (c+1+i%2)%3), fmt.Sprint("other", c)
			if c%2 == 0 {
				a, b = b, a
			}
			r := p.all(backend.Take, group(a, list, 1), group(d, list, 1), group(b, list, 1))
			switch d, err := p.do(r); {
			case err != nil:
				p.errorf("a take of several keys among %d goroutines: %v", crowd, err)
			case d.Allowed:
				passed.Add(1)
			}
			if p.grab("crowd0", list, 1) {
				alone.Add(1)
			}
		}
	})
	used := int64(0)
	for i := range 3 {
		used += p.states(fmt.Sprint("crowd", i), list)[0].Used
	}
	p.must(used == 2*passed.Load()+alone.Load(), "%d units are used, by %d takes of two of the keys and %d of one",
		used, passed.Load(), alone.Load())
}

// keyBinds has every key bind once, of a pass and of a denial, with other costs and
// policies per key.
func keyBinds(p *probe) {
	small, large := p.list(p.day(10), "-small"), p.list(p.day(20), "-large")
	d := p.askAll(backend.Take, group("a", large, 3), group("b", small, 3), group("c", large, 3))
	p.must(d.Allowed && d.Key == "b" && d.Remaining == 7, "the least room is b's: %+v", d)
	d = p.askAll(backend.Take, group("a", large, 12), group("b", small, 1), group("c", large, 1))
	p.must(d.Allowed && d.Key == "a" && d.Remaining == 5, "the least room is a's: %+v", d)
	d = p.askAll(backend.Take, group("d", small, 2), group("e", small, 2))
	p.must(d.Key == "d", "of equals the first binds: %+v", d)
	one := group("d", small, 0)
	one.Costs = ramp(small)
	d = p.askAll(backend.Peek, one, group("a", large, 6))
	p.must(!d.Allowed && d.Key == "a", "a has no room: %+v", d)
	p.askAll(backend.Take, one, group("e", small, 1))
	for i, s := range p.states("d", small) {
		p.must(s.Used == 2+one.Costs[i], "a cost of %d after 2 left %d used", one.Costs[i], s.Used)
	}
	p.needsClock()
	hour := p.carried(p.policy("hour", 0, p.day(1)))
	for i := range 2 { // the longest RetryAfter binds, whichever key has it
		early, late := fmt.Sprint("early", i), fmt.Sprint("late", i)
		p.fill(early, hour)
		p.advance(time.Minute)
		p.fill(late, hour)
		gs := []backend.Group{group(early, hour, 1), group(late, hour, 1)}
		gs[0], gs[i] = gs[i], gs[0]
		x, y := p.peek(early, hour, 1).RetryAfter, p.peek(late, hour, 1).RetryAfter
		d = p.askAll(backend.Take, gs...)
		p.must(!d.Allowed && d.RetryAfter == max(x, y), "of the waits %v and %v, %+v binds", x, y, d.State)
	}
}

func reservesAll(p *probe) {
	list, other := p.list(p.day(100)), p.list(p.day(50), "-other")
	a, b, c := group("a", list, 40), group("b", other, 30), group("a", other, 20) // one key twice
	r := p.lease(a)
	send := func(l backend.Lease) (backend.Decision, error) {
		q := p.all(backend.Reserve, a, b, c)
		leases(&q, l)
		return p.send(context.Background(), q)
	}
	d, err := send(r.Lease)
	p.must(err == nil && d.Allowed, "a Reserve of several keys said %+v, %v", d, err)
	_, err = send(r.Lease)
	p.must(errors.Is(err, backend.ErrNotHeld), "a second Reserve under one ID: %v", err)
	parts := []*reservation{r, p.lease(b), p.lease(c)}
	for i := range parts {
		parts[i].ID = idOf(r.ID, i)
	}
	before := p.states("a", list)
	denied := p.lease(a)
	b.Cost = 21
	d, err = send(denied.Lease)
	p.must(err == nil && !d.Allowed && d.Key == "b", "a Reserve without room at one key said %+v, %v", d, err)
	denied.notHeld()
	p.unchanged("a", list, before)
	parts[2].gives(backend.Extend, nil, "an Extend")
	parts[1].settles(10)
	p.used("b", other, 10)
	p.used("a", list, 40)
	p.used("a", other, 20)
	parts[1].notHeld()
	parts[0].settles(0)
	p.asNew("a", list)
	parts[2].settles(45)
	p.used("a", other, 45)
}

func countTwice(p *probe) {
	list, other := p.list(p.day(10)), p.list(p.day(10), "-other")
	d := p.askAll(backend.Take, group("a", list, 2), group("a", other, 3))
	p.must(d.Allowed && d.Key == "a", "two lists of one key: %+v", d)
	still := p.still("a", join(list, other))
	for _, gs := range [][]backend.Group{
		{group("a", list, 1), group("a", list, 1)},
		{group("a", list, 1), group("b", list, 1), group("b", join(other, list[:1]), 1)},
	} {
		for _, op := range []backend.Op{backend.Take, backend.Peek} {
			_, err := p.do(p.all(op, gs...))
			p.invalid(err, "a count that is listed twice", gs[len(gs)-1].Key)
		}
	}
	still()
	p.asNew("b", list)
}
