// Package trace drives stores through the same random steps and compares
// every field of every answer. It holds the two renderings of the algorithms,
// and all stores, equal.
package trace

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Steps makes requests and moves a clock, the same for the same seed. Not
// safe for concurrent use.
type Steps struct {
	rand  *rand.Rand
	now   int64
	top   int64 // the latest instant of the era
	lists [][]backend.Policy
	keys  []string

	eras   int
	steady bool
}

// Start is where the clock of Steps begins, in microseconds of the Unix epoch. It lies on no
// boundary of a window but that of the shortest periods, in mid-minute and mid-hour.
const Start = 1_745_000_145_000_000

// New returns the steps of a seed. Their numbers change while counts live, and
// their clock goes back: both renderings have to agree on that too.
func New(seed uint64) *Steps { return steps(seed, false) }

// Steady returns steps that keep each era's numbers and never set the clock back.
// They are for stores that drop a count once it is unused. A longer period or an
// earlier instant would bring it back in a store that still has it.
func Steady(seed uint64) *Steps { return steps(seed, true) }

func steps(seed uint64, steady bool) *Steps {
	s := &Steps{rand: rand.New(rand.NewPCG(seed, 1)), now: Start, steady: steady}
	s.era()
	return s
}

// Now is the clock, in microseconds, that the stores under test should read.
func (s *Steps) Now() int64 { return s.now }

// Era is the number of the present era. No key of one era comes in another.
func (s *Steps) Era() int { return s.eras }

// era draws new keys and policies, few of each, so that the steps of an era meet
// the same counts. Lists with the same names and other numbers are what changes
// while counts live.
func (s *Steps) era() {
	s.top = s.now
	s.eras++
	s.keys = nil
	for range 1 + s.rand.IntN(3) {
		s.keys = append(s.keys, fmt.Sprintf("k%x", s.rand.Uint64()))
	}
	base := s.policies()
	s.lists = [][]backend.Policy{base}
	for i := s.rand.IntN(3); i > 0 && !s.steady; i-- {
		s.lists = append(s.lists, s.changed(base))
	}
}

// policies draws one policy in half of the eras: the script has a path of its own
// for a single policy.
func (s *Steps) policies() []backend.Policy {
	var ps []backend.Policy
	for i := range 1 + s.rand.IntN(3)*s.rand.IntN(2) {
		ps = append(ps, backend.Policy{
			Name:      fmt.Sprintf("p%d", i),
			Algorithm: s.algorithm(),
			OnFailure: backend.FailClosed,
			Shadow:    s.rand.IntN(4) == 0,
		})
	}
	return ps
}

// changed returns the policies with other numbers, in another order, or
// without one of them.
func (s *Steps) changed(base []backend.Policy) []backend.Policy {
	ps := slices.Clone(base)
	for i := range ps {
		if s.rand.IntN(2) == 0 {
			ps[i].Algorithm = s.other(&ps[i])
		}
	}
	s.rand.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
	if len(ps) > 1 && s.rand.IntN(3) == 0 {
		ps = ps[1:]
	}
	return ps
}

// other returns another algorithm for a policy: of any kind, or one of the same
// identity with other numbers. It is the policy's own where a store and the model
// would differ on the one drawn.
func (s *Steps) other(p *backend.Policy) algo.Algorithm {
	a, b := p.Algorithm, s.algorithm()
	if s.rand.IntN(3) > 0 {
		b = a.WithMax(s.size(a.Kind().MaxLimit()))
	}
	for _, q := range slices.Concat(s.lists...) {
		if q.Name == p.Name && (outlives(&q.Algorithm, &b) || outlives(&b, &q.Algorithm)) {
			return a
		}
	}
	return b
}

// outlives reports whether a store may forget a level of a while b still sees it. The
// model keeps every level, so the two would differ where both are right.
func outlives(a, b *algo.Algorithm) bool {
	full := a.Max()
	if a.Kind().Queues() {
		full = a.Worst(time.Microsecond) // with what waits
	}
	drains := float64(full) / rate(b)
	return a.Kind().Rates() && b.Kind() == a.Kind() && rate(a) > rate(b) && drains > (kept-deepest).Seconds()
}

// rate is in units a second.
func rate(a *algo.Algorithm) float64 { return float64(a.Limit().Events) / a.Limit().Period.Seconds() }

// algorithm draws one of any kind.
func (s *Steps) algorithm() algo.Algorithm {
	kinds := rule.Kinds()
	k := kinds[s.rand.IntN(len(kinds))]
	return k.Random(algo.Per(s.size(k.MaxLimit()), s.period()), s.between)
}

// between draws a number of a range: mostly a small one.
func (s *Steps) between(least, most int64) int64 { return min(least-1+s.size(most), most) }

// size draws 1 to most, each power of two as likely as the next. A uniform draw
// of a range of 36 bits would hardly ever be small.
func (s *Steps) size(most int64) int64 {
	n := int64(1) << s.rand.IntN(bits.Len64(uint64(most)))
	return min(most, n+s.rand.Int64N(n))
}

// periods holds both ends of the range and what users write between them.
var periods = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, time.Second, 7 * time.Second,
	time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, algo.MaxPeriod,
}

// period draws an odd number of microseconds a third of the time.
func (s *Steps) period() time.Duration {
	p := periods[s.rand.IntN(len(periods))]
	if s.rand.IntN(3) == 0 {
		p = min(p+time.Duration(s.rand.Int64N(p.Microseconds()))*time.Microsecond, algo.MaxPeriod)
	}
	return p
}

// Next moves the clock and returns a request without buffers, which Ask adds. Now
// and then a new era begins, at the latest where the clock leaves the range that
// every window can count in.
func (s *Steps) Next() backend.Request {
	if s.now < Start/2 || s.now > 2*Start {
		s.now = Start
		s.era()
	} else if s.rand.IntN(200) == 0 {
		s.era()
	}
	list := s.lists[s.rand.IntN(len(s.lists))]
	s.tick(list)
	g := backend.Group{Key: s.keys[s.rand.IntN(len(s.keys))], Policies: list}
	op := backend.Take
	switch n := s.rand.IntN(100); {
	case n < 1: // few, since each ends the counts that the other operations need
		return backend.Request{Op: backend.Reset, Group: g}
	case n < 12:
		op = backend.Peek
	case n < 18 && returns(list):
		op = backend.Return
	}
	s.cost(&g, op)
	r := backend.Request{Op: op, Group: g}
	if op == backend.Take && s.rand.IntN(8) == 0 {
		s.run(&r.Group)
	}
	return r
}

// returns reports whether units of all policies of a list can be returned.
func returns(list []backend.Policy) bool {
	return !slices.ContainsFunc(list, func(p backend.Policy) bool { return !p.Algorithm.Kind().Returns() })
}

// run makes a take a run of calls. Half of them are UpTo; of the others the costs become those of
// all calls.
func (s *Steps) run(g *backend.Group) {
	n := 2 + s.rand.Int64N(5)
	for i := range g.Policies {
		most := g.Policies[i].Algorithm.Max()
		if g.Policies[i].Shadow {
			most = algo.MaxCount
		}
		if g.CostOf(i) > most/n {
			return
		}
	}
	if g.Run = n; n%2 == 0 {
		g.UpTo = true
		return
	}
	g.Cost *= n
	for i := range g.Costs {
		g.Costs[i] *= n
	}
}

// cost draws what can be granted. Half of the costs are a sixteenth of the limit at
// most, so that some takes pass before one is denied. A quarter are 0, which a
// peek may have everywhere and a take beside another cost only.
func (s *Steps) cost(g *backend.Group, op backend.Op) {
	if s.rand.IntN(3) == 0 {
		g.Cost = 1
		return
	}
	for i := range g.Policies {
		most := g.Policies[i].Algorithm.Max()
		if g.Policies[i].Shadow { // whose cost may be above its limit
			most = min(2*most, algo.MaxCount)
		}
		n := min(most, s.size(most))
		if s.rand.IntN(2) == 0 {
			n = 1 + s.rand.Int64N(1+most/16)
		}
		if s.rand.IntN(4) == 0 {
			n = 0
		}
		g.Costs = append(g.Costs, min(n, most))
	}
	if op != backend.Peek && slices.Max(g.Costs) == 0 {
		g.Costs[s.rand.IntN(len(g.Costs))] = 1
	}
}

// tick moves the clock: mostly by parts of a period, often not at all,
// sometimes to just beside a boundary, seldom back or far.
func (s *Steps) tick(list []backend.Policy) {
	a := &list[s.rand.IntN(len(list))].Algorithm
	period := a.Limit().Period.Microseconds()
	switch n := s.rand.IntN(100); {
	case n < 25:
	case n < 60:
		s.now += s.rand.Int64N(1 + period/int64(1+s.rand.IntN(50)))
	case n < 70:
		s.now += s.rand.Int64N(1000)
	case n < 85:
		s.now += period - s.now%period - 1 + s.rand.Int64N(3)
	case n < 90:
		s.now += period + s.rand.Int64N(3) - 1
	case n < 94:
		s.back(s.rand.Int64N(1 + period))
	case n < 97:
		s.back(s.rand.Int64N(1 + 3*period))
	default:
		s.now += s.rand.Int64N(1 + 4*period)
	}
}

// kept is how long the script keeps what has ended, under a virtual clock. deepest is
// how far below the latest instant the clock goes back.
const kept, deepest = time.Hour, 50 * time.Minute

// back sets the clock back, unless the steps are steady.
func (s *Steps) back(d int64) {
	s.top = max(s.top, s.now)
	if !s.steady {
		s.now = max(s.now-d, s.top-deepest.Microseconds())
	}
}

// Answer is all that a store says of one request.
type Answer struct {
	Decision backend.Decision
	Each     []backend.State
	Err      error
}

// Ask puts one request to a store with buffers of its own.
func Ask(ctx context.Context, s backend.Store, r backend.Request) Answer {
	var a Answer
	a.Each = make([]backend.State, len(r.Policies))
	r.Each = a.Each
	a.Decision, a.Err = layer.Ask(ctx, s, r)
	return a
}

// String is every field, so that equal strings are equal answers. It is also what
// a failure shows, and seed and step make it again.
func (a Answer) String() string {
	return fmt.Sprintf("%+v %+v %v", a.Decision, a.Each, a.Err)
}

// Same is an error that shows both answers where they differ in any field.
func Same(a, b Answer) error {
	if x, y := a.String(), b.String(); x != y {
		return fmt.Errorf("answers differ:\n  %s\n  %s", x, y)
	}
	return nil
}
