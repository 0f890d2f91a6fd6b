package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

const tick = time.Microsecond // the clock's grain

// epoch is where a settable clock starts. It starts on no window's boundary, and hours
// from the next midnight, so that a day's count stays in its day.
const epoch = 1_745_000_000_137_531

// asked are the operations that every store has.
var asked = []backend.Op{backend.Take, backend.Peek, backend.Reset}

// probe is one case on one fresh subject.
type probe struct {
	t *testing.T
	Subject
	rule   string // what the case checks, in the contract's words
	shape  shape
	k      int64      // the number of sub-keys per key, at least 1
	dice   *rand.Rand // the same seed for every case: a failure can be repeated
	now    int64
	ledger ledger
}

func (h Harness) probe(t *testing.T, rule string, s shape) *probe {
	t.Helper()
	p := &probe{t: t, Subject: h.New(t), rule: rule, shape: s, dice: rand.New(rand.NewPCG(1, 1))}
	p.k, p.ledger.mu.rows = int64(max(1, s.shards)), map[row]*account{}
	if p.SetNow != nil {
		p.set(epoch)
	}
	t.Cleanup(func() {
		// The bounds of every case, whatever it was about: a take that passes too
		// often is seldom what the case looks at.
		if err := errors.Join(p.ledger.check(), p.Store.Close()); err != nil {
			p.errorf("at the end: %v", err)
		}
	})
	return p
}

// errorf reports a failure; goroutines may call it.
func (p *probe) errorf(format string, args ...any) {
	p.t.Helper()
	p.breaks(p.rule, format, args...)
}

// breaks reports a failure of another rule than that of the case.
func (p *probe) breaks(rule, format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("%s\n\tthe contract: \"%s\"", fmt.Sprintf(format, args...), rule)
}

// must ends the case unless ok. It belongs to the case's own goroutine.
func (p *probe) must(ok bool, format string, args ...any) {
	if !ok {
		p.t.Helper()
		p.errorf(format, args...)
		p.t.FailNow()
	}
}

// needs skips the case where the harness lacks a hook.
func (p *probe) needs(has bool, hook string) {
	if !has {
		p.t.Helper()
		p.t.Skipf("needs Subject.%s, which this harness does not set", hook)
	}
}

func (p *probe) needsClock() {
	p.t.Helper()
	p.needs(p.SetNow != nil, "SetNow")
}

func (p *probe) set(us int64) {
	p.now = us
	p.SetNow(us)
}

func (p *probe) advance(d time.Duration) { p.set(p.now + d.Microseconds()) }

// needsOp skips the case where the store lacks an operation that not all have.
func (p *probe) needsOp(op backend.Op) {
	p.t.Helper()
	if !p.Store.Capabilities().Ops.Has(op) && !backend.Basic.Ops.Has(op) {
		p.t.Skipf("the store has no %v", op)
	}
}

// carried returns a list that the store supports. A store need not support
// every algorithm, but must report what it does not as ErrUnsupported.
func (p *probe) carried(list ...backend.Policy) []backend.Policy {
	p.t.Helper()
	err := p.Store.Check(list)
	if errors.Is(err, backend.ErrUnsupported) {
		p.t.Skipf("the store does not carry these policies: %v", err)
	}
	p.must(err == nil, "Check refused policies that are in range: %v", err)
	return list
}

// group returns a group with one cost for all policies.
func group(key string, list []backend.Policy, n int64) backend.Group {
	return backend.Group{Key: key, Policies: list, Cost: n}
}

func request(op backend.Op, key string, list []backend.Policy, n int64) backend.Request {
	return backend.Request{Op: op, Group: group(key, list, n)}
}

// ramp returns a cost for each policy, other than its neighbours': 1, 2, 3 … 5, 1 …
func ramp(list []backend.Policy) (costs []int64) {
	for i := range list {
		costs = append(costs, int64(1+i%5))
	}
	return costs
}

// do sends a request and records its charges. Goroutines may call it.
func (p *probe) do(r backend.Request) (backend.Decision, error) {
	d, err := p.send(context.Background(), r)
	if err == nil && p.SetNow != nil {
		p.ledger.note(p.now, &r, &d)
	}
	return d, err
}

// grab takes n and reports whether it passed. Goroutines may call it.
func (p *probe) grab(key string, list []backend.Policy, n int64) bool {
	d, err := p.do(request(backend.Take, key, list, n))
	if err != nil {
		p.errorf("a take of %d among %d goroutines: %v", n, crowd, err)
	}
	return d.Allowed
}

// ask sends a request that the store has to decide. An estimate is allowed only
// where the whole key was not read, which a peek always does.
func (p *probe) ask(op backend.Op, g backend.Group) backend.Decision {
	p.t.Helper()
	p.needsOp(op)
	d, err := p.do(backend.Request{Op: op, Group: g})
	p.must(err == nil, "%v of %.80q: %v", op, g.Key, err)
	cached := p.Cached && op == backend.Take && d.Source == backend.FromDenyCache && d.Known == backend.Estimated && !d.Allowed
	p.must((cached || d.Source == backend.FromStore) && d.Err == nil, "%v: decided by %v: %v", op, d.Source, d.Err)
	p.must(op != backend.Peek || d.Known == backend.Exact, "a peek is an estimate: %+v", d)
	listed := slices.ContainsFunc(g.Policies, func(q backend.Policy) bool { return q.Name == d.Policy })
	p.must(listed, "the state is that of %q, which is not listed", d.Policy)
	return d
}

func (p *probe) take(key string, list []backend.Policy, n int64) backend.Decision {
	p.t.Helper()
	return p.ask(backend.Take, group(key, list, n))
}

func (p *probe) peek(key string, list []backend.Policy, n int64) backend.Decision {
	p.t.Helper()
	return p.ask(backend.Peek, group(key, list, n))
}

func (p *probe) reset(key string, list []backend.Policy) {
	p.t.Helper()
	p.ask(backend.Reset, group(key, list, 0))
}

// takes takes what has to pass, or must not.
func (p *probe) takes(g backend.Group, pass bool) backend.Decision {
	p.t.Helper()
	d := p.ask(backend.Take, g)
	p.must(d.Allowed == pass, "a take of %d %v (passed: %v) said %+v", g.Cost, g.Costs, d.Allowed, d.State)
	return d
}

func (p *probe) passes(key string, list []backend.Policy, n int64) backend.Decision {
	p.t.Helper()
	return p.takes(group(key, list, n), true)
}

func (p *probe) denied(key string, list []backend.Policy, n int64) backend.Decision {
	p.t.Helper()
	return p.takes(group(key, list, n), false)
}

// fill takes all of a new key's limit, by the largest cost that each sub-key can
// grant, and the remainder unit by unit.
func (p *probe) fill(key string, list []backend.Policy) {
	p.t.Helper()
	limit := list[0].Algorithm.Max()
	for i := range list {
		limit = min(limit, list[i].Algorithm.Max())
	}
	for range p.k {
		p.passes(key, list, limit/p.k)
	}
	for range limit % p.k {
		p.passes(key, list, 1)
	}
}

// fails requires that every operation fails with an error.
func (p *probe) fails(ctx context.Context, key string, list []backend.Policy, want error) {
	p.t.Helper()
	for _, op := range asked {
		_, err := p.send(ctx, request(op, key, list, 1))
		p.must(errors.Is(err, want), "a %v of %q gave %v, want %v", op, key, err, want)
	}
}

// states returns every policy's state for the key.
func (p *probe) states(key string, list []backend.Policy) []backend.State {
	p.t.Helper()
	each := make([]backend.State, len(list))
	p.ask(backend.Peek, backend.Group{Key: key, Policies: list, Each: each})
	return each
}

// used requires that every policy counts n units of the key.
func (p *probe) used(key string, list []backend.Policy, n int64) {
	p.t.Helper()
	for _, s := range p.states(key, list) {
		p.must(s.Used == n, "%d units of %.80q are used, want %d: %+v", s.Used, key, n, s)
	}
}

// asNew requires that the key's states are those of an unused key.
func (p *probe) asNew(key string, list []backend.Policy) {
	p.t.Helper()
	for _, s := range p.states(key, list) {
		p.must(s.Used == 0 && s.Remaining == s.Limit && s.RetryAfter == 0 && s.ResetAfter == 0, "not unused: %+v", s)
	}
}

// still returns what requires that a key's states are what they are now, and
// that nothing is stored beside what is.
func (p *probe) still(key string, list []backend.Policy) (check func()) {
	p.t.Helper()
	before, stored := p.states(key, list), p.stored()
	return func() {
		p.t.Helper()
		p.unchanged(key, list, before)
		p.storedLess(stored)
	}
}

// unchanged requires that a key's states are what they were.
func (p *probe) unchanged(key string, list []backend.Policy, before []backend.State) {
	p.t.Helper()
	after := p.states(key, list)
	p.must(slices.EqualFunc(before, after, p.same), "%.80q had the states\n\t%+v\nand has\n\t%+v", key, before, after)
}

// slack is the most time that can go by between two calls of a case. It is
// generous, since the real clock runs on while a busy machine does not. What it could
// hide is checked exactly where the clock can be set.
func (p *probe) slack() time.Duration {
	if p.SetNow != nil {
		return 0
	}
	return time.Minute
}

// same reports whether two states are equal but for the time that went by.
func (p *probe) same(a, b backend.State) bool {
	near := func(x, y time.Duration) bool { return (x-y).Abs() <= p.slack() && (x == 0) == (y == 0) }
	return a.Policy == b.Policy && a.Limit == b.Limit && a.Used == b.Used && a.Remaining == b.Remaining &&
		near(a.RetryAfter, b.RetryAfter) && near(a.ResetAfter, b.ResetAfter)
}

// stored returns what the store holds, nothing where the harness can't tell.
func (p *probe) stored() map[string]time.Duration {
	if p.Expiries == nil {
		return nil
	}
	return maps.Clone(p.Expiries())
}

// storedLess requires that nothing was stored since, nor is held any longer. A
// longer expiry is a write too: a denied client could keep a key forever.
func (p *probe) storedLess(before map[string]time.Duration) {
	p.t.Helper()
	for name, left := range p.stored() {
		was, ok := before[name]
		p.must(ok, "%.160q was stored", name)
		p.must(left <= was, "%.160q was to be held for %v, now for %v", name, was, left)
	}
}

// kind makes an algorithm of a limit, which is also what it can grant at once.
type kind func(algo.Limit) algo.Algorithm

func bucketedWindow(l algo.Limit) algo.Algorithm { return algo.BucketedWindow(l, 10) }
func tokenBucket(l algo.Limit) algo.Algorithm    { return algo.TokenBucket(l, l.Events) }

// calendar has the limit in a day, whatever the limit's period, which only tells
// its count from those of other periods. What it can't have is refused as of others.
func calendar(l algo.Limit) algo.Algorithm {
	if w := algo.FixedWindow(l); w.Check() != nil {
		return w
	}
	return algo.Calendar(l.Events, algo.Day(), time.FixedZone(fmt.Sprintf("%dus", l.Period.Microseconds()), 0))
}

// shape is the list of policies that a case runs on: one policy per kind.
type shape struct {
	name   string
	kinds  []kind
	shards int // the number of sub-keys that each key is spread over; 0: not spread
}

// The shape All is in an order that differs from that of the kinds. A store that
// sorts policies, or keeps one kind elsewhere, mixes up their states there.
var shapes = []shape{
	{"FixedWindow", []kind{algo.FixedWindow}, 0},
	{"SlidingWindow", []kind{algo.SlidingWindow}, 0},
	{"BucketedWindow", []kind{bucketedWindow}, 0},
	{"SlidingLog", []kind{algo.SlidingLog}, 0},
	{"CompactLog", []kind{algo.CompactLog}, 0},
	{"TokenBucket", []kind{tokenBucket}, 0},
	{"Calendar", []kind{calendar}, 0},
	{"All", []kind{algo.SlidingLog, tokenBucket, algo.FixedWindow, bucketedWindow, algo.SlidingWindow, calendar,
		algo.CompactLog}, 0},
}

var allInOne = shapes[len(shapes)-1:]

// kind returns the i-th kind. Past the end it starts over, so that a case can
// ask for a second policy of a shape that has one.
func (s shape) kind(i int) kind { return s.kinds[i%len(s.kinds)] }

func policy(name string, a algo.Algorithm) backend.Policy {
	return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailClosed}
}

// join returns the lists as one, in memory of its own.
func join(lists ...[]backend.Policy) []backend.Policy { return slices.Concat(lists...) }

// day returns a limit per day of n units per sub-key. Cases that don't move the
// clock use a day: no count leaves while they run on the real clock.
func (p *probe) day(n int64) algo.Limit { return algo.PerDay(n * p.k) }

// policy returns a policy of the shape's i-th kind.
func (p *probe) policy(name string, i int, l algo.Limit) backend.Policy {
	return policy(name, p.shape.kind(i)(l))
}

// list returns the shape's policies with one limit for all, named p0, p1 … and
// perhaps a suffix.
func (p *probe) list(l algo.Limit, suffix ...string) (list []backend.Policy) {
	p.t.Helper()
	for i := range p.shape.kinds {
		list = append(list, p.policy(fmt.Sprint("p", i, strings.Join(suffix, "")), i, l))
	}
	return p.carried(list...)
}
