package standalone_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLeaseTwins holds the Go rendering and the script equal over all operations: after
// each step, every field of a peek. One trace holds the memory store to the script, by a
// clock that goes on. The other holds the plainest model to it, by a clock that steps
// back and numbers that change while counts live.
func TestLeaseTwins(t *testing.T) {
	redistest.Plain(t)
	seed := redistest.Seed(t)
	for i, name := range []string{"Memory", "Model"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			leaseTwins(t, server.Client(t), seed+uint64(i), i == 0, redistest.Steps(6_000, 1_000_000)/2)
			server.NoImmortals(t)
		})
	}
}

func leaseTwins(t *testing.T, client *redis.Client, seed uint64, steady bool, steps int) {
	s := trace.New(seed)
	if steady {
		s = trace.Steady(seed)
	}
	now := func() time.Time { return time.UnixMicro(s.Now()) }
	lua := standalone.New(clock.Client{Processor: client, Now: now}, &standalone.Options{Budget: 10 * time.Second})
	var model backend.Store = trace.NewModel(s.Now)
	if steady {
		model = memory.New(&memory.Options{Now: now})
	}
	l := &leaseSteps{Steps: s, rand: rand.New(rand.NewPCG(seed, 7)), with: map[*backend.Policy][]backend.Policy{}, rates: map[string]algo.Algorithm{}}
	ctx, ops := context.Background(), map[backend.Op]int{}
	for i := range steps {
		if m, ok := model.(*memory.Store); ok && i%47 == 46 {
			model = restarted(t, m, now)
		}
		r := l.next()
		if ops[r.Op]++; r.UpTo {
			ops[backend.AtMost]++
		}
		want, got := trace.Ask(ctx, model, r), trace.Ask(ctx, lua, r)
		require.NoError(t, same(want, got), "step %d at %d: %v %+v %+v", i, s.Now(), r.Op, r.Group, r.Lease)
		peek := backend.Request{Op: backend.Peek, Group: backend.Group{Key: r.Key, Policies: r.Policies}}
		if i%2 == 0 {
			peek.Cost = 1
		}
		want, got = trace.Ask(ctx, model, peek), trace.Ask(ctx, lua, peek)
		require.NoError(t, same(want, got), "peek after step %d at %d: %v %+v %+v", i, s.Now(), r.Op, r.Group, r.Lease)
	}
	t.Log(steps, "steps:", ops)
	require.Len(t, ops, 9)
}

// stepsBack are steps of two leases by a clock that goes back.
var stepsBack = [][]struct {
	op backend.Op
	id byte
	to time.Duration
}{
	// What was charged before gives nothing back of what was charged since.
	{{backend.Reserve, 1, 0}, {backend.Reserve, 2, -time.Minute}, {backend.Settle, 1, 0}, {backend.Peek, 0, 0}},
	// What was charged after is given back.
	{{backend.Reserve, 1, 0}, {backend.Reserve, 2, -time.Minute}, {backend.Settle, 2, 0}, {backend.Peek, 0, 0}},
	// A settlement drops what has aged, or does not, alike.
	{{backend.Take, 0, 0}, {backend.Reserve, 1, 500 * time.Millisecond}, {backend.Reserve, 2, 100 * time.Millisecond},
		{backend.Settle, 2, 600 * time.Millisecond}, {backend.Peek, 0, -300 * time.Millisecond}},
	// Another charge of the same instant, in a log that began anew, gives nothing back.
	{{backend.Reserve, 1, 0}, {backend.Take, 0, 2 * time.Second}, {backend.Take, 0, -2100 * time.Millisecond},
		{backend.Take, 0, 100 * time.Millisecond}, {backend.Settle, 1, 0}, {backend.Peek, 0, 0}},
}

func TestSettleAfterStepBack(t *testing.T) {
	now := int64(trace.Start)
	clock := clock.Client{Processor: redistest.Start(t).Client(t), Now: func() time.Time { return time.UnixMicro(now) }}
	lua := standalone.New(clock, &standalone.Options{Budget: 10 * time.Second})
	model, ctx := trace.NewModel(func() int64 { return now }), context.Background()
	for n, k := range rule.Kinds() {
		list := []backend.Policy{{Name: "p", Algorithm: k.Random(algo.PerSecond(10), func(least, most int64) int64 { return min(max(least, 10), most) })}}
		for i, steps := range stepsBack {
			now = trace.Start + int64(n)*time.Hour.Microseconds()
			for j, step := range steps {
				now += step.to.Microseconds()
				r := backend.Request{Op: step.op, Group: backend.Group{Key: fmt.Sprint("back", n, i), Policies: list, Cost: 1}}
				if step.id > 0 {
					r.Lease = &backend.Lease{ID: backend.LeaseID{step.id}, Length: time.Minute}
				}
				require.NoError(t, same(trace.Ask(ctx, model, r), trace.Ask(ctx, lua, r)), "%v, %d, step %d", k, i, j)
			}
		}
	}
}

// TestSlotsFarAhead: a slot that ends further ahead than a step of one period may put it
// counts as absent. Else a clock that was years ahead would hold it for as long.
func TestSlotsFarAhead(t *testing.T) {
	now := int64(trace.Start)
	clock := clock.Client{Processor: redistest.Start(t).Client(t), Now: func() time.Time { return time.UnixMicro(now) }}
	lua := standalone.New(clock, &standalone.Options{Budget: 10 * time.Second})
	model, ctx := trace.NewModel(func() int64 { return now }), context.Background()
	list := []backend.Policy{{Name: "p", Algorithm: algo.InFlight(2)}}
	for i, back := range []time.Duration{time.Hour, 24 * time.Hour, 48 * time.Hour, 5000 * time.Hour} {
		now = trace.Start
		ask := func(op backend.Op, id byte) backend.Decision {
			r := backend.Request{Op: op, Group: backend.Group{Key: fmt.Sprint(i), Policies: list, Cost: 1}}
			if id > 0 {
				r.Lease = &backend.Lease{ID: backend.LeaseID{15: id}, Length: 24 * time.Hour}
			}
			got := trace.Ask(ctx, lua, r)
			require.NoError(t, same(trace.Ask(ctx, model, r), got), "%v back, %v %d", back, op, id)
			return got.Decision
		}
		ask(backend.Reserve, 1)
		ask(backend.Reserve, 2)
		now -= back.Microseconds()
		ask(backend.Peek, 0)
		ask(backend.Extend, 1)
		require.Equal(t, back > 24*time.Hour, ask(backend.Reserve, 3).Allowed)
		ask(backend.Reserve, 4)
		require.LessOrEqual(t, ask(backend.Peek, 0).ResetAfter, 48*time.Hour)
		ask(backend.Settle, 2)
		ask(backend.Settle, 1)
		ask(backend.Settle, 3)
		ask(backend.Reserve, 5)
	}
}

// same compares answers, and of errors which one it is.
func same(want, got trace.Answer) error {
	if want.Err == nil || got.Err == nil {
		return trace.Same(want, got)
	}
	for _, err := range []error{backend.ErrNotHeld, backend.ErrLeaseEnded} {
		if errors.Is(want.Err, err) != errors.Is(got.Err, err) {
			return fmt.Errorf("errors differ: %w and %w", want.Err, got.Err)
		}
	}
	return nil
}

// leaseSteps are steps with reservations among them.
type leaseSteps struct {
	*trace.Steps
	rand  *rand.Rand
	open  []backend.Request
	with  map[*backend.Policy][]backend.Policy
	rates map[string]algo.Algorithm // of the era's buckets, by the policy's name
	era   int
	drawn uint64
}

func (s *leaseSteps) next() backend.Request {
	before := s.Now()
	r := s.Steps.Next()
	if s.Now() < before-time.Hour.Microseconds() { // the steps begin again
		s.open = nil
	}
	if s.Era() != s.era {
		s.era = s.Era()
		clear(s.with)
		clear(s.rates)
	}
	r.Run, r.Policies = 0, s.slots(r.Policies)
	if r.Costs != nil && len(r.Costs) < len(r.Policies) {
		r.Costs = append(slices.Clone(r.Costs), int64(s.rand.IntN(2)))
	}
	n := s.rand.IntN(12)
	if len(s.open) > 0 && n < 4 {
		return s.later()
	}
	leased := r.Policies[len(r.Policies)-1].Algorithm.Kind().Leased()
	if r.Op == backend.Return {
		if leased {
			r.Op = backend.Peek
		}
		s.open = slices.DeleteFunc(s.open, func(o backend.Request) bool { return r.Op == backend.Return && o.Key == r.Key && hasLog(o.Policies) })
	}
	switch {
	case r.Op != backend.Take:
	case n == 4 && !leased:
		r.Op = backend.Record
		if s.rand.IntN(3) == 0 {
			s.beyond(&r.Group, 3)
		}
	case n == 5 && !leased:
		s.beyond(&r.Group, 2)
		r.Run, r.UpTo = max(1, r.CostOf(0)), true
		r.Cost, r.Costs = 1, nil
	case leased || n > 7:
		r.Op = backend.Reserve
		r.Lease = &backend.Lease{ID: s.id(), Length: s.length()}
		s.open = append(s.open, r)
		if len(s.open) > 30 {
			s.open = s.open[10:]
		}
		if s.rand.IntN(20) == 0 {
			return s.later() // perhaps before its Reserve
		}
	}
	return r
}

// hasLog reports whether the list has a SlidingLog. Go keeps charges of one instant as one entry, and
// the script a member each. So after a Return they know of different units of a lease.
func hasLog(list []backend.Policy) bool {
	return slices.ContainsFunc(list, func(p backend.Policy) bool { return p.Algorithm.Kind() == rule.KindSlidingLog })
}

// beyond makes g cost up to so many times the first policy's limit, of each policy.
func (s *leaseSteps) beyond(g *backend.Group, times int64) {
	g.Costs, g.Cost = nil, 1+s.rand.Int64N(times*g.Policies[0].Algorithm.Max())
	for i := range g.Policies {
		g.Cost = min(g.Cost, g.Policies[i].Algorithm.Kind().MaxLimit())
	}
}

// slots adds an InFlight policy to a third of the lists. All buckets of a name have one
// rate. A level above the burst may count for longer by a slower rate than the level of
// a faster one is kept. The model keeps every level.
func (s *leaseSteps) slots(list []backend.Policy) []backend.Policy {
	if with, ok := s.with[&list[0]]; ok {
		return with
	}
	with := slices.Clone(list)
	for i := range with {
		p := &with[i]
		if first, ok := s.rates[p.Name]; ok && p.Algorithm.Kind() == rule.KindTokenBucket {
			p.Algorithm = first.WithMax(p.Algorithm.Max())
		} else if p.Algorithm.Kind() == rule.KindTokenBucket {
			s.rates[p.Name] = p.Algorithm
		}
	}
	if s.rand.IntN(3) == 0 {
		with = append(with, backend.Policy{Name: "slots", Algorithm: algo.InFlight(1 + s.rand.Int64N(5))})
	}
	s.with[&list[0]] = with
	return with
}

func (s *leaseSteps) id() (id backend.LeaseID) {
	s.drawn++
	binary.LittleEndian.PutUint64(id[:], s.rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], s.drawn)
	return id
}

func (s *leaseSteps) length() time.Duration {
	lengths := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}
	return lengths[s.rand.IntN(len(lengths))]
}

// later asks for something of an earlier lease.
func (s *leaseSteps) later() backend.Request {
	r := s.open[max(0, len(s.open)-1-s.rand.IntN(8))]
	l := *r.Lease
	r.Lease = &l
	switch n := s.rand.IntN(10); {
	case n == 0:
		return r // the same Reserve again
	case n < 3:
		r.Op, l.Length = backend.Extend, s.length()
		return r
	}
	r.Op = backend.Settle
	l.Attempt = backend.LeaseID{byte(1 + s.rand.IntN(3))}
	l.Unresolved = s.rand.IntN(4) == 0
	if s.rand.IntN(4) > 0 {
		l.Actual = s.actual(&r.Group)
	}
	if s.rand.IntN(3) == 0 { // the order of the lease counts
		r.Policies, r.Costs = slices.Clone(r.Policies), nil
		s.rand.Shuffle(len(r.Policies), func(i, j int) { r.Policies[i], r.Policies[j] = r.Policies[j], r.Policies[i] })
	}
	return r
}

func (s *leaseSteps) actual(g *backend.Group) (all []int64) {
	for i := range g.Policies {
		k := g.Policies[i].Algorithm.Kind()
		all = append(all, min(s.rand.Int64N(2+g.CostOf(i)+g.CostOf(i)/int64(1+s.rand.IntN(5))), k.MaxLimit()))
	}
	return all
}
