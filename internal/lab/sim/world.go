package sim

import (
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// World is one run: the network, the servers and the fleet of a seed.
type World struct {
	*engine
	plan     *Plan
	nodes    []*node
	links    map[path]*link
	dials    map[path]int
	named    map[path]int
	dialing  map[path]*dialing
	policies map[numbers]backend.Policy
	ledger   ledger
	procs    []*process
	failures []error
}

// newWorld makes the world of a plan. It is called in a bubble.
func newWorld(p *Plan) *World {
	w := &World{
		engine: newEngine(p.Seed), plan: p,
		links: map[path]*link{}, dials: map[path]int{}, named: map[path]int{}, dialing: map[path]*dialing{},
		policies: map[numbers]backend.Policy{},
	}
	for i := range p.Nodes {
		n := &node{world: w, addr: fmt.Sprintf("10.0.0.%d:6379", i+1), id: fmt.Sprintf("%040d", i+1)}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// resolve returns the node at an address.
func (w *World) resolve(addr string) *node {
	for _, n := range w.nodes {
		if n.addr == addr {
			return n
		}
	}
	return nil
}

// fail notes that an invariant is broken.
func (w *World) fail(rule string, err error) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Errorf("%s: %w", rule, err))
	}
}

// elsewhere returns the redirect of a node for a key, "" where it decides.
func (w *World) elsewhere(n *node, tag string, asking bool) string { return "" }

func (w *World) slots(n *node) []byte { return failure("ERR This instance has cluster support disabled") }

// states are what a node keeps.
type states struct {
	one   *state
	byTag map[string]*state
}

func (s *states) of(tag string, n *node) *state {
	if !n.world.plan.Cluster {
		if s.one == nil {
			s.one = newState()
		}
		return s.one
	}
	if s.byTag == nil {
		s.byTag = map[string]*state{}
	}
	if s.byTag[tag] == nil {
		s.byTag[tag] = newState()
	}
	return s.byTag[tag]
}

func (n *node) replicate(g *asked, now int64) {}
