package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// wrongRequest is a request that is wrong in one way.
type wrongRequest struct {
	what  string
	value string // what the error has to name
	never bool   // whether a larger limit would grant it
	spoil func(*backend.Request)
}

// wrongRequests holds the ends of each range and one step past them. The
// largest numbers overflow where a store adds a cost before it compares.
var wrongRequests = []wrongRequest{
	{"an empty key", `""`, false, func(r *backend.Request) { r.Key = "" }},
	{"a key too long", "4097 bytes", false, func(r *backend.Request) { r.Key = strings.Repeat("k", backend.MaxKey+1) }},
	{"a cost below 0", "-1", false, func(r *backend.Request) { r.Cost = -1 }},
	{"the least cost", "-9223372036854775808", false, func(r *backend.Request) { r.Cost = math.MinInt64 }},
	{"a cost above the limit", "11", true, func(r *backend.Request) { r.Cost = 11 }},
	{"a cost of 32 bits", "2147483648", true, func(r *backend.Request) { r.Cost = 1 << 31 }},
	{"the largest cost", "9223372036854775807", true, func(r *backend.Request) { r.Cost = math.MaxInt64 }},
	{"no policy", "0", false, func(r *backend.Request) { r.Policies = nil }},
	{"too few costs", "0", false, func(r *backend.Request) { r.Costs = []int64{} }},
	{"too many costs", "9", false, func(r *backend.Request) { r.Costs = make([]int64, 9) }},
	{"one cost below 0", "-7", false, func(r *backend.Request) { r.Costs = costsBut(r, -7) }},
	{"one cost above the limit", "12", true, func(r *backend.Request) { r.Costs = costsBut(r, 12) }},
	{"room for too few states", "0", false, func(r *backend.Request) { r.Each = []backend.State{} }},
	{"room for too many states", "9", false, func(r *backend.Request) { r.Each = make([]backend.State, 9) }},
}

// costsBut returns costs of 1, the last but one of which is n. It is neither the first
// nor the last, which may be all that a store looks at.
func costsBut(r *backend.Request, n int64) []int64 {
	costs := slices.Repeat([]int64{1}, len(r.Policies))
	costs[max(0, len(costs)-2)] = n
	return costs
}

// refuses sends wrong requests. A spread key refuses a cost above its smallest
// share, although the shares that got the remainder could grant it.
func refuses(p *probe) {
	list := p.list(algo.PerDay(11*p.k - 1))
	small := p.carried(join(list, p.carried(p.policy("small", 1, p.day(5))))...)
	p.passes("a", small, 2)
	still := p.still("a", small)
	for _, op := range []backend.Op{backend.Take, backend.Peek} {
		for _, row := range wrongRequests {
			r := request(op, "a", list, 1)
			row.spoil(&r)
			p.refused(r, row)
		}
		p.refused(request(op, "a", small, 6), wrongRequest{what: "what one can't grant", value: "6", never: true})
	}
	p.refused(request(backend.Take, "a", list, 0), wrongRequest{what: "a cost of 0", value: "0"})
	for _, key := range []string{"", "a"} {
		p.refused(request(backend.Reset, key, nil, 0), wrongRequest{what: "a reset without policies"})
	}
	still()
	p.fill("full", small)
	p.must(!p.peek("full", small, 5).Allowed, "the largest cost passed at a spent key")
}

// refused sends a request that has to give an *InvalidError. A cost below zero
// is not ErrNeverAdmissible: no larger limit would grant it.
func (p *probe) refused(r backend.Request, row wrongRequest) {
	what := fmt.Sprintf("a %v with %s", r.Op, row.what)
	_, err := p.do(r)
	p.invalid(err, what, row.value)
	never := errors.Is(err, backend.ErrNeverAdmissible)
	p.must(never == row.never, "%s: ErrNeverAdmissible is %v: %v", what, never, err)
	if row.value == "11" && p.k > 1 { // else the caller can't see why 11 of a large limit never pass
		p.must(strings.Contains(err.Error(), "10"), "the error does not name the share, 10: %v", err)
	}
}

// invalid requires an *InvalidError that names the value.
func (p *probe) invalid(err error, what, value string) {
	p.t.Helper()
	var bad *backend.InvalidError
	p.must(errors.As(err, &bad), "%s: want an *InvalidError, got %v", what, err)
	p.must(strings.Contains(err.Error(), value), "%s: the error does not name %s: %v", what, value, err)
}

// capable asks for every operation, and for one key more than the store can
// decide. A store that ignores what it does not support would charge a part of
// the request.
func capable(p *probe) {
	c, list := p.Store.Capabilities(), p.list(p.day(10))
	p.must(c.Ops.Has(backend.Take) && c.Ops.Has(backend.Peek) && c.Keys >= 1,
		"capabilities %+v lack Take, Peek or a key", c)
	p.passes("a", list, 3)
	still := p.still("a", list)
	for op := range backend.Op(32) {
		if !c.Ops.Has(op) {
			_, err := p.send(context.Background(), request(op, "a", list, 1))
			p.must(errors.Is(err, backend.ErrUnsupported), "the operation %d (%v) gave %v", op, op, err)
		}
	}
	r := request(backend.Take, "a", list, 1)
	for i := range c.Keys {
		r.And = append(r.And, group(fmt.Sprint("another ", i), list, 1))
	}
	_, err := p.send(context.Background(), r)
	p.must(errors.Is(err, backend.ErrUnsupported), "a take of %d keys gave %v", 1+len(r.And), err)
	still()
}

// ended asks with a context that was cancelled, and with one whose deadline is
// long past. The two give different errors, and a store that makes its own
// deadline from the context's may see only the second.
func ended(p *probe) {
	list := p.list(p.day(10))
	p.passes("a", list, 4)
	still := p.still("a", list)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	p.fails(gone, "a", list, context.Canceled)
	p.fails(late, "a", list, context.DeadlineExceeded)
	still()
}

// corrupt spoils one of two keys. A policy beside the corrupt one may fail too,
// where a store keeps the policies of a key in one value.
func corrupt(p *probe) {
	p.needs(p.Corrupt != nil, "Corrupt")
	list, sound := p.list(p.day(10)), p.carried(p.policy("sound", 1, p.day(10)))
	for _, key := range []string{"bad", "good"} {
		p.passes(key, join(list, sound), 4)
	}
	p.Corrupt("bad", list)
	p.garbage("bad", list)
	p.garbage("bad", join(sound, list))
	p.garbage("bad", join(list, sound))
	p.used("good", join(list, sound), 4)
	d, err := p.do(request(backend.Peek, "bad", sound, 0))
	p.must(errors.As(err, new(*backend.CorruptError)) || err == nil && d.Used == 4,
		"a policy beside the corrupt one says %+v, %v", d.State, err)
}

// garbage takes twice. A store that overwrites the value with a new count grants
// a fresh quota, and the second take no longer shows what happened.
func (p *probe) garbage(key string, list []backend.Policy) {
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Take} {
		d, err := p.do(request(op, key, list, 1))
		var c *backend.CorruptError
		p.must(errors.As(err, &c) && c.Key == key, "a %v of a corrupt value of key %q gave %+v, %v", op, key, d, err)
		p.must(errors.Is(err, backend.ErrUnavailable), "not ErrUnavailable: %v", err)
	}
}

// unavailable makes both faults. The two errors exclude each other: a caller
// repeats a take after the first and must not after the second.
func unavailable(p *probe) {
	p.needs(p.LoseReply != nil || p.Refuse != nil, "LoseReply or Refuse")
	list := p.list(p.day(10))
	p.passes("a", list, 1)
	if p.Refuse != nil {
		p.Refuse()
		_, err := p.do(request(backend.Take, "a", list, 2))
		p.must(errors.Is(err, backend.ErrUnavailable), "a take that nobody decided gave %v", err)
		p.must(!errors.Is(err, backend.ErrPerhapsCounted), "both counted and not: %v", err)
		p.used("a", list, 1)
	}
	if p.LoseReply != nil {
		p.loses("a", list)
	}
}

// loses loses the reply to a take of 3, which may be counted once or not at all.
// A store that still learns what came of it may answer: then it was counted.
func (p *probe) loses(key string, list []backend.Policy) {
	before := p.states(key, list)
	p.LoseReply()
	d, err := p.do(request(backend.Take, key, list, 3))
	for i, s := range p.states(key, list) {
		n := s.Used - before[i].Used
		p.must(n == 3 || n == 0 && err != nil, "%s was charged %d units for a take of 3, error %v", s.Policy, n, err)
	}
	if err == nil {
		p.must(d.Allowed, "a take that was counted says %+v", d)
		return
	}
	p.must(errors.Is(err, backend.ErrPerhapsCounted), "a take whose reply was lost gave %v", err)
	p.must(!errors.Is(err, backend.ErrUnavailable), "both counted and not: %v", err)
}

// atMostOnce loses two replies: a client library that repeats a command by
// itself does so the first time, or only once its connection was replaced. A
// wrapper that then goes on to another sub-key charges twice.
func atMostOnce(p *probe) {
	p.needs(p.LoseReply != nil, "LoseReply")
	list := p.list(p.day(100))
	p.passes("a", list, 1)
	p.loses("a", list)
	p.loses("a", list)
}

// closed closes over a key that a deny cache may hold, and one that it can't. A cached
// denial after Close would hide that the store is gone.
func closed(p *probe) {
	list := p.list(p.day(1))
	p.fill("spent", list)
	p.denied("spent", list, 1)
	for range 2 {
		p.must(p.Store.Close() == nil, "closing twice is not closing once")
		p.fails(context.Background(), "spent", list, backend.ErrClosed)
		p.fails(context.Background(), "fresh", list, backend.ErrClosed)
	}
}
