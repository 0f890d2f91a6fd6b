package wait

import (
	"container/heap"
	"sync"

	"github.com/headgate-go/headgate/backend"
)

// Gate gives turns at one key to the heads of several queues. Calls that count for a key
// of their own and for a shared one queue by their own key. Their heads take at the
// shared key one after the other: the holder of the turn takes, all others sleep.
//
// A turn goes to the head whose turn begins first, in virtual time. The next turn of its
// queue begins 1 / weight later. Virtual time goes on by one while each queue that wants a
// turn has as many as its weight. A queue that comes later begins at the present time. So
// a queue of one call waits for one turn of each other queue, however long these are. New
// queues without end do not overtake a queue of many calls.
type Gate struct {
	queues *Queues
	name   queueName
	users  int // guarded by Queues.mu: calls between Gate and Close
	mu     struct {
		sync.Mutex
		now     float64               // virtual time
		next    map[queueName]float64 // when the next turn of a queue begins
		weights float64               // of the holder and of the heads in ready
		ready   places                // the heads that want a turn
		holder  *place                // the head whose turn it is
		count   uint64                // of the heads that have entered
	}
}

// place is a head at a gate. Its fields are guarded by the gate's lock, but the first
// three, which never change.
type place struct {
	queue  queueName
	weight float64
	turn   chan struct{} // gets an element with the turn; has room for one
	begins float64       // the virtual time at which the head's turn begins
	number uint64        // in the order of entering
	index  int           // in ready, -1: not there
}

// Gate returns the gate of a key and a list of policies. The caller closes it.
func (qs *Queues) Gate(key string, policies []backend.Policy) *Gate {
	name := qs.nameOf(&Call{Key: key, Policies: policies})
	qs.mu.Lock()
	defer qs.mu.Unlock()
	g := qs.mu.gates[name]
	if g == nil {
		g = &Gate{queues: qs, name: name}
		g.mu.next = map[queueName]float64{}
		qs.mu.gates[name] = g
	}
	g.users++
	return g
}

// Close ends the use of the gate by one caller of [Queues.Gate].
func (g *Gate) Close() {
	g.queues.mu.Lock()
	defer g.queues.mu.Unlock()
	//mutant:gates-deleted
	if g.users--; g.users == 0 {
		delete(g.queues.mu.gates, g.name)
	}
}

// enter wants a turn for a head.
func (g *Gate) enter(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	begins, ok := g.mu.next[p.queue]
	//mutant:turns-of-late-queue
	if !ok || g.isPast(begins) {
		begins = g.mu.now
	}
	p.begins, p.number = begins, g.mu.count
	g.mu.count++
	g.mu.weights += p.weight
	heap.Push(&g.mu.ready, p)
	g.grant()
}

// isPast reports whether a queue has let a turn pass that began at a virtual time. The
// turns of a queue that never rests are late by less than one. The caller holds the lock.
func (g *Gate) isPast(begins float64) bool { return begins < g.mu.now-1 }

// served notes that the holder of the turn has passed: its queue has had a turn. It comes
// before the next head of the queue enters.
func (g *Gate) served(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.next[p.queue] = p.begins + 1/p.weight
	//mutant:virtual-time-goes-on
	g.mu.now += 1 / g.mu.weights
	g.forget()
}

// forget deletes queues that have let their turn pass, faster than served adds queues.
// The caller holds the lock.
func (g *Gate) forget() {
	looks := 4
	for name, begins := range g.mu.next {
		//mutant:turns-forgotten
		if g.isPast(begins) {
			delete(g.mu.next, name)
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// leave gives up the head's turn, or its wish for one. It does nothing for a head that
// has neither.
func (g *Gate) leave(p *place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.holder == p:
		g.mu.holder = nil
	case p.index >= 0:
		heap.Remove(&g.mu.ready, p.index)
	default:
		return
	}
	g.mu.weights -= p.weight
	g.grant()
}

// grant gives the turn to the first head. The caller holds the lock.
func (g *Gate) grant() {
	if g.mu.holder != nil || len(g.mu.ready) == 0 {
		return
	}
	p := heap.Pop(&g.mu.ready).(*place)
	g.mu.holder, g.mu.now = p, max(g.mu.now, p.begins)
	p.turn <- struct{}{}
}

// places is a heap: the first is the one whose turn begins first.
type places []*place

func (ps places) Len() int { return len(ps) }

// Less decides whose turn comes first: the one that begins first, then the one that
// entered first.
func (ps places) Less(i, j int) bool {
	if a, b := ps[i], ps[j]; a.begins != b.begins {
		return a.begins < b.begins
	}
	return ps[i].number < ps[j].number
}
func (ps places) Swap(i, j int) {
	ps[i], ps[j] = ps[j], ps[i]
	ps[i].index, ps[j].index = i, j
}
func (ps *places) Push(x any) {
	p := x.(*place)
	p.index = len(*ps)
	*ps = append(*ps, p)
}
func (ps *places) Pop() any {
	all := *ps
	p := all[len(all)-1]
	all[len(all)-1] = nil
	*ps, p.index = all[:len(all)-1], -1
	return p
}
