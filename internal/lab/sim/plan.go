package sim

import (
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Plan is what a seed decides before a run begins.
type Plan struct {
	Seed      uint64
	Cluster   bool
	Nodes     int
	Procs     int
	Callers   int // of each process
	TLS       bool
	Far       bool          // a link of 40 ms
	Lasts     time.Duration // of virtual time, without the drain
	Policies  []backend.Policy
	Schedule  []fault
	Fewer     int // only so many of the schedule's faults happen; -1: all
	DenyCache time.Duration
}

func (p *Plan) handshakes() int {
	if p.TLS {
		return 1
	}
	return 0
}

type fault struct{}

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64) *Plan {
	p := &Plan{Seed: seed, Nodes: 1, Procs: 4, Callers: 8, Lasts: 20 * time.Second, Fewer: -1}
	p.Policies = []backend.Policy{{Name: "a", Algorithm: algo.SlidingLog(algo.PerSecond(40)), OnFailure: backend.FailOpen},
		{Name: "b", Algorithm: algo.TokenBucket(algo.PerSecond(20), 40), OnFailure: backend.FailOpen}}
	return p
}
