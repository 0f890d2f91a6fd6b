package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
)

// Plan is what a seed decides before a run begins.
type Plan struct {
	Seed      uint64
	Workloads []*workload
	Cluster   bool
	Primaries int
	Lag       time.Duration // of the replicas
	Procs     int
	Callers   int           // of each process
	Pause     time.Duration // between the calls of one
	Keys      int
	TLS       bool
	Far       bool          // a link of 20 ms each way
	Lasts     time.Duration // of virtual time, without the drain
	Mode      headgate.FailureMode
	Lists     [lists][]headgate.Policy
	Unlent    [lists]bool              // lists that do not borrow, though others do
	Shards    int                      // of all lists
	Later     [lists][]headgate.Policy // of every other process; empty: the same
	Schedule  []fault
	Fewer     int    // only so many of the schedule's faults happen; -1: all
	Pool      int    // connections of a client
	Sentinel  bool   // closes the connections of a primary that it makes a replica
	Slots     bool   // a reservation holds a slot
	Hurry     []span // when callers call again at once; none: processes are not late
	Lending
	Extras
}

// The lists of policies, each with a limiter in each process. The policies of all lists are
// counted together.
const (
	plain   = iota
	lowered // limits that are half as high
	slots   // with slots for reservations
	lists
)

// handshakes returns how many round trips TLS adds to a dial.
func (p *Plan) handshakes() int {
	if p.TLS {
		return 1
	}
	return 0
}

// Shape is what a run has in place of what its seed draws.
type Shape struct {
	Procs int           // a fleet of so many processes that call often for a minute; 0: as drawn
	Lasts time.Duration // so much virtual time, with 1,500 calls; 0: as drawn
	With  string        // workloads that it has, by their names; those that are drawn come beside them
	Lone  bool          // a lone caller of a server far away, and nothing else; see Plan.lone
}

// NewPlan returns the plan of a seed. Runs of one shape are alike, so that their speed can be
// measured.
func NewPlan(seed uint64, shape Shape) *Plan {
	dice := rand.New(rand.NewPCG(seed, 14))
	p := &Plan{Seed: seed, Workloads: drawWorkloads(seed, shape.With), Primaries: 1, Procs: 1 + dice.IntN(12), Lasts: time.Minute, Fewer: -1}
	if dice.IntN(2) == 0 {
		p.Cluster, p.Primaries = true, 2+dice.IntN(3)
	}
	p.Lag = time.Duration(dice.IntN(20)) * time.Millisecond
	p.TLS, p.Far = dice.IntN(4) == 0, dice.IntN(8) == 0
	p.Callers = max(2+dice.IntN(10), 1+len(p.Workloads))
	p.Keys = 2 + dice.IntN(4)
	p.Pool = 2 + dice.IntN(12)
	p.lasts(dice, shape)
	p.Mode = [...]headgate.FailureMode{headgate.FailOpen, headgate.FailClosed, headgate.FailLocal}[dice.IntN(3)]
	p.draw(shape)
	p.Schedule = newSchedule(p, dice)
	if shape.Lone {
		p.lone(dice)
	}
	p.addWorkloads()
	return p
}

// lasts draws for how long a run lasts, and how often callers call.
func (p *Plan) lasts(dice *rand.Rand, shape Shape) {
	all := time.Duration(p.Procs * p.Callers)
	p.Pause = all * time.Minute / 4000
	busy := p.has("borrow") || p.has("late") || p.has("crowd")
	if quiet := dice.IntN(8) == 0; shape.Procs > 0 {
		p.Procs, p.Callers = shape.Procs, max(4+p.Callers/2, 1+len(p.Workloads))
		p.Pause = time.Duration(p.Procs*p.Callers) * time.Minute / 3700
	} else if quiet && !busy {
		p.Lasts, p.Pause = 20*time.Minute, all*20*time.Minute/1500
	}
	if shape.Lasts > 0 {
		p.Lasts, p.Pause = shape.Lasts, time.Duration(p.Procs*p.Callers)*shape.Lasts/1500
	}
}

// addWorkloads draws the policies, and what workloads add to a plan.
func (p *Plan) addWorkloads() {
	dice := rand.New(rand.NewPCG(p.Seed, 73))
	for j := range 1 + dice.IntN(3) {
		p.Lists[plain] = append(p.Lists[plain], headgate.Policy{Name: fmt.Sprint("l", j), Algorithm: algorithm(dice), OnFailure: p.Mode})
	}
	for _, w := range p.Workloads {
		if w.plan != nil {
			w.plan(p, dice)
		}
	}
	for i, list := range p.Lists {
		if list == nil {
			p.Lists[i] = p.Lists[plain]
		}
		if p.has("deploy") {
			p.Later[i] = later(p.Lists[i])
		}
	}
	p.queue()
}

// queue makes queues of the buckets, in a third of the plans whose counts are whole, and not
// returned. It has dice of its own.
func (p *Plan) queue() {
	if p.Shards > 0 || p.Borrow > 0 || p.has("return") || rand.New(rand.NewPCG(p.Seed, 79)).IntN(3) > 0 {
		return
	}
	for _, list := range slices.Concat(p.Lists[:], p.Later[:]) {
		for i := range list {
			if a := &list[i].Algorithm; a.Kind() == rule.KindTokenBucket {
				*a = algo.LeakyQueue(a.Limit(), a.Max(), a.Limit().Period/10)
			}
		}
	}
}

// algorithm draws one whose limit the fleet reaches now and then.
func algorithm(dice *rand.Rand) algo.Algorithm {
	limit := int64(48 + dice.IntN(200))
	l := algo.Limit{Events: limit, Period: time.Duration(1+dice.IntN(10)) * time.Second}
	switch dice.IntN(7) {
	case 0:
		return algo.FixedWindow(l)
	case 1:
		return algo.SlidingWindow(l)
	case 2:
		return algo.BucketedWindow(l, 10)
	case 3:
		return algo.SlidingLog(l)
	case 4:
		return algo.CompactLog(l)
	case 5:
		return algo.Calendar(limit*200, algo.Day(), time.UTC)
	}
	return algo.TokenBucket(l, limit)
}

// deploy sees to it that the list has a window, which has another period in every other process.
func (p *Plan) deploy(*rand.Rand) {
	list := p.Lists[plain]
	if slices.Equal(later(list), list) {
		a := &list[0].Algorithm
		*a = algo.SlidingWindow(algo.Per(a.Limit().Events, time.Second))
	}
}

// later returns a list with another shape of its first policy that is a window.
func later(list []headgate.Policy) []headgate.Policy {
	list = slices.Clone(list)
	for i := range list {
		a := &list[i].Algorithm
		l := a.Limit()
		l.Period *= 2
		switch a.Kind() {
		case rule.KindFixedWindow:
			*a = algo.FixedWindow(l)
		case rule.KindSlidingWindow:
			*a = algo.SlidingWindow(l)
		case rule.KindBucketedWindow:
			*a = algo.BucketedWindow(a.Limit(), 15)
		default:
			continue
		}
		break
	}
	return list
}

// shadow adds a policy that only watches.
func (p *Plan) shadow(dice *rand.Rand) {
	first := p.Lists[plain][0]
	s := headgate.Policy{Name: "shadow", Algorithm: algorithm(dice), OnFailure: p.Mode, Shadow: true}
	if p.Borrow > 0 {
		s.Algorithm = first.Algorithm.Part(0, int64(2+dice.IntN(3)))
	}
	p.Lists[plain] = append(p.Lists[plain], s)
}

// lower makes a list whose limits are half of those of the others.
func (p *Plan) lower(dice *rand.Rand) {
	low := p.Lists[plain]
	high := slices.Clone(low)
	for i := range high {
		high[i].Algorithm = high[i].Algorithm.Share(2, 1)
	}
	p.Unlent[lowered] = dice.IntN(2) == 0
	p.Lists[plain], p.Lists[lowered] = high, low
}

// spread spreads the keys. A call's cost of 3 has room in each share, and each process has a
// part of it.
func (p *Plan) spread(dice *rand.Rand) {
	shards, least := 4, 3
	if p.Borrow > 0 {
		shards, least = 2+dice.IntN(3), max(3, p.Procs)
	}
	for _, list := range p.Lists {
		for i := range list {
			shards = max(2, min(shards, int(list[i].Algorithm.Max())/least))
		}
	}
	p.Shards = shards
}

// reserve adds a slot that reservations hold, in half of the plans.
func (p *Plan) reserve(dice *rand.Rand) {
	if p.Slots = dice.IntN(2) == 0; !p.Slots {
		return
	}
	p.Unlent[slots] = true // slots are not lent
	slot := headgate.Policy{Name: "running", Algorithm: algo.InFlight(int64(p.Procs + dice.IntN(30))), OnFailure: p.Mode}
	p.Lists[slots] = append(slices.Clone(p.Lists[plain]), slot)
}

// list returns the policies of a process's limiter.
func (p *Plan) list(proc, i int) []headgate.Policy {
	if proc%2 == 1 && p.Later[i] != nil {
		return p.Later[i]
	}
	return p.Lists[i]
}

// policies calls f with every policy of the fleet.
func (p *Plan) policies(f func(headgate.Policy)) {
	for _, all := range [...][lists][]headgate.Policy{p.Lists, p.Later} {
		for _, list := range all {
			for _, policy := range list {
				f(policy)
			}
		}
	}
}

// identity names a policy's count.
func identity(p headgate.Policy) string {
	id := p.Algorithm.Identity()
	return p.Name + "/" + strconv.FormatInt(id.Period, 10) + "/" + strconv.FormatInt(int64(id.Buckets), 10)
}
