package sim

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
)

// state is what a node keeps: of all keys on a standalone server, of one key on a cluster,
// so that a key can move. It follows the clock of whoever decides.
//
// A replica's state has its primary's log. It decides the log's calls when it is asked for
// something, which happens to few.
type state struct {
	store   *memory.Store
	now     int64  // µs: the instant of the decision under way
	log     []past // all that it has decided, or is to decide again
	decided int    // of log
}

// past is what was decided.
type past struct {
	at  int64
	all []*asked
}

func newState(log []past) *state {
	s := &state{log: log}
	s.store = memory.New(&memory.Options{MaxKeys: 4096, Now: func() time.Time { return time.UnixMicro(s.now) }})
	return s
}

// catchUp decides again what another copy has decided.
func (s *state) catchUp() {
	for ; s.decided < len(s.log); s.decided++ {
		var again []*asked
		for _, g := range s.log[s.decided].all {
			h := *g
			h.done = nil
			again = append(again, &h)
		}
		s.now = s.log[s.decided].at
		s.decide(again)
	}
}

// again returns a state that decides what s has.
func (s *state) again() *state { return newState(slices.Clip(s.log)) }

// states are what a node keeps.
type states struct {
	node  *node
	byTag map[string]*state // one, under "", of a standalone server
}

func (s *states) of(tag string) *state {
	if !s.node.world.plan.Cluster {
		tag = ""
	}
	if s.byTag == nil {
		s.byTag = map[string]*state{}
	}
	if s.byTag[tag] == nil {
		s.byTag[tag] = newState(nil)
	}
	return s.byTag[tag]
}

// copyOf makes s what the other one is: a replica's first synchronization.
func (s *states) copyOf(other *states) {
	s.byTag = map[string]*state{}
	for tag, from := range other.byTag {
		s.byTag[tag] = from.again()
	}
}

// primaries returns the nodes whose counts are no copies.
func (w *World) primaries() []*node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return n.replica != nil })
}

// used returns the units of a policy that a state counts at an instant.
func (s *state) used(tag string, p backend.Policy, now int64) int64 { return s.peek(tag, p, now).Used }

// peek returns what a state counts of a policy at an instant.
func (s *state) peek(tag string, p backend.Policy, now int64) backend.State {
	s.catchUp()
	s.now = now
	return s.view(tag, p)
}

// view returns what a state counts of a policy at the instant of the decision under way.
func (s *state) view(tag string, p backend.Policy) backend.State {
	g := backend.Group{Key: tag, Policies: []backend.Policy{p}, Costs: []int64{0}, Each: make([]backend.State, 1)}
	r := backend.Request{Op: backend.Peek, Group: g}
	var d backend.Decision
	if err := s.store.Do(background, &r, &d); err != nil {
		return backend.State{}
	}
	return r.Each[0]
}

// replicate sends what was decided to the node's replica, which has it a moment later.
func (n *node) replicate(tag string, p past) {
	r := n.world.partner(n)
	if r.replica != n || r.down || r.dark {
		return
	}
	life := r.life
	n.world.at(n.lag(), func() {
		if r.replica == n && r.life == life && !r.down && !r.dark {
			s := r.keeps.of(tag)
			s.log = append(s.log, p)
		}
	})
}

// lag is how long a replica takes to have what its primary decided.
func (n *node) lag() time.Duration { return n.world.plan.Lag }

// partner returns the other node of a primary and its replica.
func (w *World) partner(n *node) *node {
	for i := range w.nodes {
		if w.nodes[i] == n {
			return w.nodes[i^1]
		}
	}
	return nil
}
