package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// World is one run: the network, the servers and the fleet of a seed.
type World struct {
	*engine
	plan     *Plan
	host     *host   // nil: processes are never late
	nodes    []*node // a primary, its replica, the next primary, …
	owner    []int   // of each of the buckets of slots: the index of a node
	moving   map[int]move
	unowned  [buckets]int // how many faults have left a bucket without an owner
	links    map[path]*link
	dials    map[path]int
	named    map[path]int
	dialing  map[path]*dialing
	policies map[numbers]backend.Policy
	ledger   ledger
	procs    []*process
	callers  int // of all processes
	failures []error
	troubles []*trouble
	start    time.Time
}

// buckets is the number of ranges of slots that move as one.
const buckets = 16

// move is a bucket that moves to another node, key by key.
type move struct {
	to    int
	moved map[string]bool // keys that are there
	torn  string          // the key that is on its way: a script of several keys of it is refused
}

// master is the address of a standalone server, which leads to the primary as a name would. It is
// no name, since go-redis looks those up by itself.
const master = "10.0.1.1:6379"

// named is the address of a plan with a name. It has two addresses: one of a host that never
// answers, and master.
const (
	named  = "redis.sim:6379"
	silent = "10.0.1.2:6379"
)

// newWorld makes the world of a plan. It is called in a bubble.
func newWorld(p *Plan) *World {
	w := &World{
		engine: newEngine(p.Seed), plan: p, moving: map[int]move{},
		links: map[path]*link{}, dials: map[path]int{}, named: map[path]int{}, dialing: map[path]*dialing{},
		policies: map[numbers]backend.Policy{},
	}
	w.ledger.init()
	if p.Hurry != nil {
		w.host = newHost(w)
	}
	for i := range 2 * p.Primaries {
		n := &node{world: w, addr: fmt.Sprintf("10.0.0.%d:6379", i+1), id: fmt.Sprintf("%040d", i+1)}
		n.keeps.node = n
		if i%2 == 1 {
			n.replica = w.nodes[i-1]
		}
		w.nodes = append(w.nodes, n)
	}
	owners := p.Primaries
	if p.Fresh {
		owners--
	}
	for b := range buckets {
		w.owner = append(w.owner, 2*(b*owners/buckets))
	}
	return w
}

// resolve returns the node at an address, nil if there is none.
func (w *World) resolve(addr string) *node {
	for i, n := range w.nodes {
		if n.addr == addr || addr == master && i == w.owner[0] {
			return n
		}
	}
	return nil
}

// fail notes that a rule is broken.
func (w *World) fail(rule string, err error) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Errorf("%s: %w", rule, err))
	}
}

// bucketOf returns the range of slots that a key is in.
func bucketOf(tag string) int { return slot.Of(tag) * buckets / slot.Count }

// elsewhere returns the redirect of a node for a key, "" where it decides.
func (w *World) elsewhere(n *node, tag string, asking bool) string {
	if !w.plan.Cluster {
		if n.replica != nil {
			return "READONLY You can't write against a read only replica."
		}
		return ""
	}
	b := bucketOf(tag)
	owner := w.nodes[w.owner[b]]
	m, moves := w.moving[b]
	switch {
	case w.unowned[b] > 0:
		return "CLUSTERDOWN Hash slot not served"
	case n == owner && !moves:
		return ""
	case n == owner && m.torn == tag:
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	case n == owner && (m.moved[tag] || owner.keeps.byTag[tag] == nil): // what is not there is made there
		return fmt.Sprintf("ASK %d %s", slot.Of(tag), w.nodes[m.to].addr)
	case n == owner:
		return ""
	case moves && n == w.nodes[m.to] && asking:
		if m.torn == tag {
			return "TRYAGAIN Multiple keys request during rehashing of slot"
		}
		return ""
	}
	return fmt.Sprintf("MOVED %d %s", slot.Of(tag), owner.addr)
}

// slots answers CLUSTER SLOTS: each bucket, its owner and the owner's replica.
func (w *World) slots(n *node) []byte {
	if !w.plan.Cluster {
		return failure("ERR This instance has cluster support disabled")
	}
	var b []byte
	named := 0
	for i, owner := range w.owner {
		if w.unowned[i] > 0 {
			continue
		}
		named++
		first := (i*slot.Count + buckets - 1) / buckets
		last := ((i+1)*slot.Count+buckets-1)/buckets - 1
		b = fmt.Appendf(b, "*4\r\n:%d\r\n:%d\r\n", first, last)
		for _, member := range []*node{w.nodes[owner], w.nodes[owner^1]} {
			host := member.addr[:len(member.addr)-len(":6379")]
			if w.plan.Unnamed && member == n {
				host = ""
			}
			b = append(append(append(b, "*3\r\n"...), bulk(host)...), ":6379\r\n"...)
			b = append(b, bulk(member.id)...)
		}
	}
	return append(fmt.Appendf(nil, "*%d\r\n", named), b...)
}

// promote makes the replica of a node the primary in its place: what the replica has not
// received is lost.
func (w *World) promote(i int) {
	old, fresh := w.nodes[i], w.nodes[i^1]
	if fresh.down || fresh.dark || fresh.frozen || fresh.replica == nil {
		return
	}
	fresh.replica, old.replica = nil, fresh
	for b := range w.owner {
		if w.owner[b] == i {
			w.owner[b] = i ^ 1
			delete(w.moving, b)
		}
	}
	w.ledger.disturb()
	for _, c := range slices.Clone(old.conns) {
		if w.plan.Sentinel && !old.down && !old.dark { // CLIENT KILL TYPE normal, after REPLICAOF
			old.cut(c)
		}
	}
	if !old.down && !old.dark { // it copies the new primary's data
		old.keeps.copyOf(&fresh.keeps)
	}
}
