package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

func refuses(p *probe) {
	list := p.list(algo.PerDay(10))
	small := p.carried(join(list, []backend.Policy{policy("small", p.shape.kind(1)(algo.PerDay(5)))})...)
	p.passes("a", small, 2)
	before := p.states("a", small)
	for _, op := range []backend.Op{backend.Take, backend.Peek} {
		for _, n := range []int64{11, 1 << 31, math.MaxInt64} {
			p.never(op, list, n)
		}
		p.never(op, small, 6) // every other policy could
		p.invalid(op, list, -1)
		p.invalid(op, list, math.MinInt64)
	}
	p.invalid(backend.Take, list, 0)
	p.unchanged("a", small, before)
	p.passes("a", small, 3)
	d := p.peek("a", small, 5)
	p.must(!d.Allowed, "the largest cost passed at a spent key")
}

func (p *probe) never(op backend.Op, list []backend.Policy, n int64) {
	p.t.Helper()
	d, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: n}})
	p.must(errors.Is(err, backend.ErrNeverAdmissible), "a %v of %d gave %+v, %v", op, n, d, err)
}

func (p *probe) invalid(op backend.Op, list []backend.Policy, n int64) {
	p.t.Helper()
	d, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: n}})
	var bad *backend.InvalidError
	p.must(errors.As(err, &bad), "a %v of %d gave %+v, %v", op, n, d, err)
	p.must(strings.Contains(err.Error(), fmt.Sprint(n)), "the error does not name the value %d: %v", n, err)
	p.must(!errors.Is(err, backend.ErrNeverAdmissible), "%d is no cost that a larger limit would grant: %v", n, err)
}

func ended(p *probe) {
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 4)
	before := p.states("a", list)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
		r := backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 1}}
		_, err := p.send(gone, r)
		p.must(errors.Is(err, context.Canceled), "a %v with a cancelled context gave %v", op, err)
		_, err = p.send(late, r)
		p.must(errors.Is(err, context.DeadlineExceeded), "a %v past its deadline gave %v", op, err)
	}
	p.unchanged("a", list, before)
}

func corrupt(p *probe) {
	p.needs(p.Corrupt != nil, "Corrupt")
	list, sound := p.list(algo.PerDay(10)), p.carried(policy("sound", p.shape.kind(1)(algo.PerDay(10))))
	for _, key := range []string{"bad", "good"} {
		p.passes(key, join(list, sound), 4)
	}
	p.Corrupt("bad", list)
	p.garbage("bad", list)
	p.garbage("bad", join(sound, list))
	p.garbage("bad", join(list, sound))
	p.used("good", join(list, sound), 4)
	d, err := p.do(backend.Request{Op: backend.Peek, Group: backend.Group{Key: "bad", Policies: sound}})
	var c *backend.CorruptError // where the policies of a key lie together it is hit as well
	p.must(errors.As(err, &c) || err == nil && d.Used == 4, "a policy beside the corrupt one says %+v, %v", d.State, err)
}

// garbage asks twice: who overwrites the value with a new count hands out a
// fresh quota, and hides what happened.
func (p *probe) garbage(key string, list []backend.Policy) {
	p.t.Helper()
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Take} {
		d, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: key, Policies: list, Cost: 1}})
		var c *backend.CorruptError
		p.must(errors.As(err, &c) && c.Key == key, "a %v of a corrupt value of key %q gave %+v, %v", op, key, d, err)
		p.must(errors.Is(err, backend.ErrUnavailable), "not ErrUnavailable: %v", err)
	}
}

func unavailable(p *probe) {
	p.needs(p.LoseReply != nil || p.Refuse != nil, "LoseReply or Refuse")
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 1)
	if p.Refuse != nil {
		p.Refuse()
		_, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 2}})
		p.must(errors.Is(err, backend.ErrUnavailable), "a take that nobody decided gave %v", err)
		p.must(!errors.Is(err, backend.ErrPerhapsCounted), "both counted and not: %v", err)
		p.used("a", list, 1)
	}
	if p.LoseReply != nil {
		p.loses("a", list)
	}
}

// loses loses the reply to a take of 3. A store that still learns what came
// of it may say so.
func (p *probe) loses(key string, list []backend.Policy) {
	p.t.Helper()
	before := p.states(key, list)[0].Used
	p.LoseReply()
	c := new(backend.Receipt)
	d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: list, Cost: 3, Receipt: c}})
	after := p.states(key, list)[0].Used
	switch {
	case err == nil:
		p.must(d.Allowed && after == before+3, "an answer %+v, and %d units were counted, want 3", d, after-before)
	default:
		p.must(errors.Is(err, backend.ErrPerhapsCounted), "a take whose answer was lost gave %v", err)
		p.must(!errors.Is(err, backend.ErrUnavailable), "both counted and not: %v", err)
		p.must(c.Outcome == backend.Unknown, "a charge whose answer was lost says %+v", c)
	}
}

func atMostOnce(p *probe) {
	p.needs(p.LoseReply != nil, "LoseReply")
	list := p.list(algo.PerDay(100))
	p.passes("a", list, 1)
	for range 2 {
		before := p.states("a", list)
		p.LoseReply()
		_, _ = p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 3}}) // what it says is another case's
		for i, s := range p.states("a", list) {
			n := s.Used - before[i].Used
			p.must(n == 0 || n == 3, "%s was charged %d units for a take of 3 whose reply was lost", s.Policy, n)
		}
	}
}

func closed(p *probe) {
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 1)
	for range 2 {
		p.must(p.Store.Close() == nil, "closing twice is not closing once")
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
			_, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
			p.must(errors.Is(err, backend.ErrClosed), "a %v after Close gave %v", op, err)
		}
	}
}
