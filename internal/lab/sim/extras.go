package sim

import (
	"math/rand/v2"
	"time"
)

// Extras are what some plans have beside what all have.
type Extras struct {
	Full    bool // a client's pool refuses a command at once while it is full
	Single  bool // every call makes a round trip of its own
	Bursts  bool // callers call at the same instants
	Distant bool // a far link is of 30 ms each way, so that two round trips take longer than the budget
	Uneven  bool // each packet of a far link takes a time of its own, up to 20 ms, so that connections overtake each other
	Fresh   bool // the last primary of a cluster has no slots, until some move there
	Unnamed bool // a node does not announce its own host
	Named   bool // the server's address is a name of two addresses, of which the first is silent
	Thin    bool // a link passes 40 MB per second each way
	Lone    bool // the one caller of one process, of a server at twice the distance of a far one
}

// draw draws the extras, with a generator of their own. So a seed without any has the rest
// of its plan as before.
func (p *Plan) draw(shape Shape) {
	dice := rand.New(rand.NewPCG(p.Seed, 43))
	some := func(n int) bool { return dice.IntN(n) == 0 }
	p.Extras = Extras{
		Full: some(4), Single: some(6), Bursts: some(4), Distant: some(2), Fresh: some(4), Unnamed: some(4), Named: some(4), Thin: some(6),
	}
	p.Sentinel = some(2) && !p.Cluster
	if p.Bursts && shape.Procs > 0 { // which add a quarter of a second to each pause
		p.Pause = p.Pause*9/10 - time.Second/4
	}
	if p.has("wait all") || p.has("late") { // which take several round trips, or as long as they
		p.Far = false
	}
	p.Distant = p.Distant && p.Far
	p.Fresh, p.Unnamed, p.Named = p.Fresh && p.Cluster, p.Unnamed && p.Cluster, p.Named && !p.Cluster
}
