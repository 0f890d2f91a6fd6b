package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// alternatives returns a request of these groups, of which each but the first one begins an
// alternative.
func (p *probe) alternatives(op backend.Op, groups ...backend.Group) backend.Request {
	p.t.Helper()
	for i := range groups {
		groups[i].Else = i > 0
	}
	return p.all(op, groups...)
}

// first sends a request of alternatives, which has to be decided.
func (p *probe) first(r backend.Request) backend.Decision {
	p.t.Helper()
	d, err := p.do(r)
	p.must(err == nil && d.Err == nil, "a %v of alternatives: %+v, %v", r.Op, d, err)
	p.must(d.Key == r.GroupAt(d.At).Key, "a %v of alternatives names key %q and group %d", r.Op, d.Key, d.At)
	return d
}

// firstThatFits spends three keys in turn, each with a count that stands in every alternative.
func firstThatFits(p *probe) {
	list, user := p.list(p.day(10)), p.list(p.day(26), "-user")
	ask := func(op backend.Op) backend.Decision {
		var groups []backend.Group
		for _, key := range []string{"a", "b", "c"} {
			one, both := group(key, list, 4), group("user", user, 4)
			one.Else = key != "a"
			groups = append(groups, one, both)
		}
		return p.first(p.all(op, groups...))
	}
	for i, used := range [][4]int64{{4, 0, 0, 4}, {8, 0, 0, 8}, {8, 4, 0, 12}, {8, 8, 0, 16}, {8, 8, 4, 20}, {8, 8, 8, 24}, {8, 8, 8, 24}} {
		look := ask(backend.Peek)
		d := ask(backend.Take)
		p.must(d.Allowed == (i < 6) && look.Allowed == d.Allowed && look.At/2 == d.At/2, "take %d: %+v after a Peek that said %+v", i, d, look)
		p.must(!d.Allowed || d.At/2 == i/2, "take %d was charged to group %d", i, d.At)
		for j, key := range []string{"a", "b", "c"} {
			p.used(key, list, used[j])
		}
		p.used("user", user, used[3])
	}
}

// soonestAlternative fills one key a minute after another, and asks for them in either order.
func soonestAlternative(p *probe) {
	p.needsClock()
	hour := p.carried(p.policy("hour", 0, p.day(1)))
	p.fill("early", hour)
	p.advance(time.Minute)
	p.fill("late", hour)
	least := min(p.peek("early", hour, 1).RetryAfter, p.peek("late", hour, 1).RetryAfter)
	for _, keys := range [][]string{{"early", "late"}, {"late", "early"}} {
		d := p.first(p.alternatives(backend.Take, group(keys[0], hour, 1), group(keys[1], hour, 1)))
		p.must(!d.Allowed && d.RetryAfter == least, "the least wait is %v, the decision %+v", least, d)
	}
	d := p.first(p.alternatives(backend.Take, group("early", hour, 1), group("early", hour, 1)))
	p.must(!d.Allowed && d.At == 0, "of equals the first: %+v", d)
}

func laterStays(p *probe) {
	list := p.list(p.day(10))
	r := p.alternatives(backend.Take, group("a", list, 4), group("b", list, 4))
	marked := backend.State{Policy: "as it was"}
	r.And[0].Each[0] = marked
	p.must(p.first(r).Allowed && r.And[0].Each[0] == marked, "a state behind the alternative that passed was written: %+v", r.And[0].Each[0])
	p.must(p.first(r).Allowed && r.And[0].Each[0] == marked, "a state behind the alternative that passed was written: %+v", r.And[0].Each[0])
	d := p.first(r)
	p.must(d.At == 1 && r.And[0].Each[0] != marked, "the second alternative: %+v, %+v", d, r.And[0].Each[0])
}

// firstSettled settles Reserves of two alternatives whose answers count as lost.
func firstSettled(p *probe) {
	p.needsOp(backend.Reserve)
	p.needsOp(backend.Settle)
	list := p.list(p.day(10))
	for i, spent := range []int64{0, 8, 0} {
		a, b := group(string(rune('a'+i)), list, 4), group(string(rune('x'+i)), list, 4)
		if spent > 0 {
			p.passes(a.Key, list, spent)
		}
		r := p.alternatives(backend.Reserve, a, b)
		leases(&r, backend.Lease{ID: p.newID(), Length: time.Minute})
		if i < 2 {
			d := p.first(r)
			p.must(d.Allowed && d.At == i, "a Reserve of alternatives: %+v", d)
		}
		s := p.settlesAll(&r, ramp(list))
		for range 2 {
			_, err := p.send(context.Background(), s)
			p.must(err == nil, "a Settle of alternatives: %v", err)
		}
		for j, key := range []string{a.Key, b.Key} {
			for k, state := range p.states(key, list) {
				want := spent * int64(1-j)
				if j == i%2 { // it was charged, or nothing was and it is the first
					want += ramp(list)[k]
				}
				p.must(state.Used == want, "after a Settle of alternatives %d units of %q are used, want %d", state.Used, key, want)
			}
		}
		_, err := p.send(context.Background(), r)
		p.must(errors.Is(err, backend.ErrNotHeld), "a Reserve after its Settle: %v", err)
		before, fresh := p.states(b.Key, list), *r.And[0].Lease
		fresh.ID = p.newID()
		r.And[0].Lease = &fresh
		_, err = p.send(context.Background(), r)
		p.must(errors.Is(err, backend.ErrNotHeld), "a Reserve whose first ID is in use: %v", err)
		p.unchanged(b.Key, list, before)
	}
}

// settlesAll returns the request that settles the alternatives of a Reserve by these actual costs.
func (p *probe) settlesAll(r *backend.Request, actual []int64) backend.Request {
	s := backend.Request{Op: backend.Settle, Group: r.Group, And: []backend.Group{r.And[0]}}
	attempt := p.newID()
	for j := range 2 {
		g := s.GroupAt(j)
		l := *g.Lease
		l.Unresolved, l.Attempt, l.Actual = true, attempt, actual
		g.Lease, g.Each = &l, nil
	}
	return s
}
