package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

// Plan is what a seed decides before a run begins.
type Plan struct {
	Seed      uint64
	Cluster   bool
	Primaries int
	Lag       time.Duration // of the replicas
	Procs     int
	Callers   int           // of each process
	Pause     time.Duration // between the calls of one
	TLS       bool
	Far       bool          // a link of 20 ms each way
	Lasts     time.Duration // of virtual time, without the drain
	Lists     [][]headgate.Policy
	Schedule  []fault
	Fewer     int               // only so many of the schedule's faults happen; -1: all
	Pool      int               // connections of a client
	Sentinel  bool              // closes the connections of a primary that it makes a replica
	Later     []headgate.Policy // in place of the first list, of every other process; nil: none has another one
	Extras
}

// handshakes returns how many round trips TLS adds to a dial.
func (p *Plan) handshakes() int {
	if p.TLS {
		return 1
	}
	return 0
}

// Shape is what a run has in place of what its seed draws.
type Shape struct {
	Procs  int           // a fleet of so many processes that call often for a minute; 0: as drawn
	Lasts  time.Duration // so much virtual time, with 1,500 calls; 0: as drawn
	Borrow bool          // every plan has a list that borrows
}

// NewPlan returns the plan of a seed. Runs of one shape are alike, so that their speed can be
// measured.
func NewPlan(seed uint64, shape Shape) *Plan {
	dice := rand.New(rand.NewPCG(seed, 14))
	p := &Plan{Seed: seed, Primaries: 1, Procs: 1 + dice.IntN(12), Lasts: time.Minute, Fewer: -1}
	if dice.IntN(2) == 0 {
		p.Cluster, p.Primaries = true, 2+dice.IntN(3)
	}
	p.Lag = time.Duration(dice.IntN(20)) * time.Millisecond
	p.TLS, p.Far = dice.IntN(4) == 0, dice.IntN(8) == 0
	p.Callers = 2 + dice.IntN(10)
	p.Pool = 2 + dice.IntN(12)
	p.Pause = time.Duration(p.Procs*p.Callers) * time.Minute / 4000
	if quiet := dice.IntN(8) == 0; shape.Procs > 0 {
		p.Procs, p.Callers = shape.Procs, 4+p.Callers/2
		p.Pause = time.Duration(p.Procs*p.Callers) * time.Minute / 3700
	} else if quiet {
		p.Lasts, p.Pause = 20*time.Minute, time.Duration(p.Procs*p.Callers)*20*time.Minute/1500
	}
	if shape.Lasts > 0 {
		p.Lasts, p.Pause = shape.Lasts, time.Duration(p.Procs*p.Callers)*shape.Lasts/1500
	}
	mode := [...]headgate.FailureMode{headgate.FailOpen, headgate.FailClosed, headgate.FailLocal}[dice.IntN(3)]
	p.Lists = lists(p, dice, mode)
	p.Schedule = newSchedule(p, dice)
	p.Sentinel = !p.Cluster && dice.IntN(2) == 0
	p.draw(shape)
	return p
}

// lists draws the lists of policies of the fleet's limiters. Names are of one list only,
// so that each count is one limiter's.
func lists(p *Plan, dice *rand.Rand, mode headgate.FailureMode) (all [][]headgate.Policy) {
	for i := range 4 {
		var list []headgate.Policy
		for j := range 1 + dice.IntN(3) {
			policy := headgate.Policy{Name: fmt.Sprintf("l%d-%d", i, j), Algorithm: algorithm(dice, p), OnFailure: mode}
			policy.Shadow = j > 0 && dice.IntN(4) == 0
			if i == 3 { // a hot key's
				policy.Shards = 4
			}
			list = append(list, policy)
		}
		all = append(all, list)
	}
	if len(all[1]) > 0 { // a slot that each reservation holds
		all[1] = append(all[1], headgate.Policy{Name: "running", Algorithm: algo.InFlight(int64(p.Procs + dice.IntN(30))), OnFailure: mode})
	}
	return all
}

// algorithm draws one whose limit the fleet reaches now and then.
func algorithm(dice *rand.Rand, p *Plan) algo.Algorithm {
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
