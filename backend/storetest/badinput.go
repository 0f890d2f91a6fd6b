package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// BadInput asks for what no store can do. Each row has to give a typed error
// that names the value, and to leave every count as it was.
func BadInput(t *testing.T, h Harness) {
	const rule = "bad input gives a typed error that says what is wrong and with which value, and leaves every count as it was"
	t.Run("Policies", func(t *testing.T) { badLists(h.probe(t, rule, shapes[0])) })
	t.Run("InRange", func(t *testing.T) { goodLists(h.probe(t, rule, shapes[0])) })
	t.Run("Requests", func(t *testing.T) { h.each(t, rule, badRequests) })
}

// refused requires an *backend.InvalidError that names the value.
func (p *probe) refused(err error, what, value string) {
	p.t.Helper()
	var bad *backend.InvalidError
	p.must(errors.As(err, &bad), "%s: want an *InvalidError, got %v", what, err)
	p.must(strings.Contains(err.Error(), value), "%s: the error does not name %s: %v", what, value, err)
}

// bad is an algorithm that is out of range, and the value that is.
type bad struct {
	a     algo.Algorithm
	value string
}

func badAlgorithms() []bad {
	list := []bad{
		{algo.Algorithm{}, "none"},
		{algo.SlidingLog(algo.PerDay(algo.MaxLogLimit + 1)), "1000001"},
		{algo.TokenBucket(algo.PerDay(1), 0), "0"},
		{algo.TokenBucket(algo.PerDay(1), -1), "-1"},
		{algo.TokenBucket(algo.PerDay(1), algo.MaxLimit+1), "68719476737"},
		{algo.TokenBucket(algo.PerDay(1), math.MaxInt64), "9223372036854775807"},
	}
	for _, n := range []int64{math.MinInt64, -1, 0, 1, algo.MaxBuckets + 1, math.MaxInt64} {
		list = append(list, bad{algo.BucketedWindow(algo.PerDay(1), n), fmt.Sprint(n)})
	}
	list = append(list, bad{algo.BucketedWindow(algo.Per(1, time.Millisecond), 1001), "1001"})
	for _, k := range shapes[len(shapes)-1].kinds {
		list = append(list, badLimits(k)...)
	}
	return list
}

func badLimits(k kind) []bad {
	var list []bad
	for _, n := range []int64{math.MinInt64, -1, 0, algo.MaxLimit + 1, math.MaxInt64} {
		list = append(list, bad{k(algo.PerDay(n)), fmt.Sprint(n)})
	}
	for _, d := range []time.Duration{math.MinInt64, -time.Second, 0, 1, time.Millisecond - tick,
		time.Second + 1, algo.MaxPeriod + tick, math.MaxInt64} {
		list = append(list, bad{k(algo.Per(1, d)), d.String()})
	}
	return list
}

var badNames = []string{"", " ", "a b", "a:b", "a{b", "a}b", "a.b", "a/b", "a\x00", "\n", "é", "\xff", "@", "[", "`", "{", "a,", strings.Repeat("a", 65)}

func badLists(p *probe) {
	p.refused(p.Store.Check(nil), "no policy", "0")
	fine := policy("fine", p.shape.kind(0)(algo.PerDay(10)))
	for _, b := range badAlgorithms() {
		p.refused(p.Store.Check([]backend.Policy{fine, policy("bad", b.a)}), b.a.String(), b.value)
	}
	for _, name := range badNames {
		shown := fmt.Sprintf("%.64q", name)
		p.refused(p.Store.Check([]backend.Policy{fine, policy(name, fine.Algorithm)}), "the name "+shown, shown[:len(shown)-1])
	}
	p.refused(p.Store.Check([]backend.Policy{fine, policy("a", fine.Algorithm), fine}), "two of one name", "fine")
}

// goodLists are the ends of what is in range: a store may not carry all of
// that, but must not call it wrong.
func goodLists(p *probe) {
	list := []algo.Algorithm{
		algo.SlidingLog(algo.PerDay(algo.MaxLogLimit)), algo.TokenBucket(algo.PerDay(1), algo.MaxLimit),
		algo.BucketedWindow(algo.Per(1, time.Millisecond), algo.MaxBuckets), algo.BucketedWindow(algo.PerDay(1), 2),
		algo.BucketedWindow(algo.PerDay(1), algo.MaxBuckets), algo.FixedWindow(algo.PerDay(algo.MaxLimit)),
		algo.SlidingWindow(algo.PerDay(algo.MaxLimit)), algo.TokenBucket(algo.Per(algo.MaxLimit, time.Millisecond), 1),
	}
	for _, k := range shapes[len(shapes)-1].kinds {
		list = append(list, k(algo.Per(1, time.Millisecond)), k(algo.Per(1, algo.MaxPeriod)))
	}
	for _, a := range list {
		for _, name := range []string{"a", "-", "_", "Az09_-", strings.Repeat("Z", 64)} {
			err := p.Store.Check([]backend.Policy{policy(name, a)})
			p.must(err == nil || errors.Is(err, backend.ErrUnsupported), "%v is in range: %v", &a, err)
		}
	}
}

// badRequest is a request that is wrong in one way.
type badRequest struct {
	what  string
	value string
	spoil func(*backend.Request)
}

var badRequestRows = []badRequest{
	{"an empty key", `""`, func(r *backend.Request) { r.Key = "" }},
	{"a key of 4,097 bytes", "4097 bytes", func(r *backend.Request) { r.Key = strings.Repeat("k", backend.MaxKey+1) }},
	{"a cost of 0", "0", func(r *backend.Request) { r.Op, r.Cost = backend.Take, 0 }},
	{"a cost below 0", "-1", func(r *backend.Request) { r.Cost = -1 }},
	{"the least cost", "-9223372036854775808", func(r *backend.Request) { r.Cost = math.MinInt64 }},
	{"a cost above the limit", "11", func(r *backend.Request) { r.Cost = 11 }},
	{"the largest cost", "9223372036854775807", func(r *backend.Request) { r.Cost = math.MaxInt64 }},
	{"no policy", "0", func(r *backend.Request) { r.Policies = nil }},
	{"too few costs", "0", func(r *backend.Request) { r.Costs = []int64{} }},
	{"too many costs", "9", func(r *backend.Request) { r.Costs = make([]int64, 9) }},
	{"one cost below 0", "-7", func(r *backend.Request) { r.Costs = costsBut(r, -7) }},
	{"one cost above the limit", "12", func(r *backend.Request) { r.Costs = costsBut(r, 12) }},
	{"room for too few states", "0", func(r *backend.Request) { r.Each = []backend.State{} }},
	{"room for too many states", "9", func(r *backend.Request) { r.Each = make([]backend.State, 9) }},
}

// costsBut returns costs of 1, the last but one of which is n.
func costsBut(r *backend.Request, n int64) []int64 {
	costs := make([]int64, len(r.Policies))
	for i := range costs {
		costs[i] = 1
	}
	costs[max(0, len(costs)-2)] = n
	return costs
}

func badRequests(p *probe) {
	list := p.list(algo.PerDay(10))
	p.passes("a", list, 4)
	before, stored := p.states("a", list), p.stored()
	for _, row := range badRequestRows {
		for _, op := range []backend.Op{backend.Take, backend.Peek} {
			r := backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 1}}
			row.spoil(&r)
			d, err := p.do(r)
			p.must(err != nil && !d.Allowed, "%s: a %v gave %+v, %v", row.what, op, d, err)
			p.refused(err, row.what, row.value)
		}
	}
	badResets(p, list)
	p.unchanged("a", list, before)
	p.storedLess(stored)
}

// capable asks for every operation, and for more keys than the store can decide.
func capable(p *probe) {
	c, list := p.Store.Capabilities(), p.list(algo.PerDay(10))
	p.must(c.Ops.Has(backend.Take) && c.Ops.Has(backend.Peek) && c.Keys >= 1, "capabilities %+v lack Take, Peek or a key", c)
	p.passes("a", list, 3)
	before, stored := p.states("a", list), p.stored()
	g := backend.Group{Key: "a", Policies: list, Cost: 1}
	for op := range backend.Op(32) {
		if !c.Ops.Has(op) {
			_, err := p.send(context.Background(), backend.Request{Op: op, Group: g})
			p.must(errors.Is(err, backend.ErrUnsupported), "the operation %d (%v) gave %v", op, op, err)
		}
	}
	and := make([]backend.Group, c.Keys)
	for i := range and {
		and[i] = g
		and[i].Key = fmt.Sprint("another ", i)
	}
	_, err := p.send(context.Background(), backend.Request{Op: backend.Take, Group: g, And: and})
	p.must(errors.Is(err, backend.ErrUnsupported), "a take of %d keys gave %v", 1+len(and), err)
	p.unchanged("a", list, before)
	p.storedLess(stored)
}

func badResets(p *probe, list []backend.Policy) {
	for _, key := range []string{"", "a"} {
		r := backend.Request{Op: backend.Reset, Group: backend.Group{Key: key}}
		_, err := p.do(r)
		var bad *backend.InvalidError
		p.must(errors.As(err, &bad), "a reset of the key %q without policies gave %v", key, err)
	}
}
