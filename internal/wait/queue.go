package wait

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/invariant"
)

// Queues are the queues of all calls that wait on a store, one per key and list of
// policies that count alike. All limiters on the store share them, so that a call of one
// does not overtake a call of another.
type Queues struct {
	seed    maphash.Seed
	bounded bool // takes end in bounded time, even if their context does not end
	closed  atomic.Bool
	mu      struct {
		sync.Mutex
		queues map[queueName]*queue
		gates  map[queueName]*Gate // those in use
	}
}

// NewQueues returns empty queues. bounded reports that takes end in bounded time, even
// if their context does not end.
func NewQueues(bounded bool) *Queues {
	qs := &Queues{seed: maphash.MakeSeed(), bounded: bounded}
	qs.mu.queues, qs.mu.gates = map[queueName]*queue{}, map[queueName]*Gate{}
	return qs
}

// Bounded reports that takes end in bounded time, even if their context does not end.
func (qs *Queues) Bounded() bool { return qs.bounded }

// Close ends all waits with backend.ErrClosed, those that begin later too. A take under way
// goes on.
func (qs *Queues) Close() {
	qs.closed.Store(true)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.mu.queues {
		if q.first != nil {
			q.first.awake()
		}
	}
}

// Freed wakes the first waiter of a key, if it waits for a slot: the group's lease was settled.
func (qs *Queues) Freed(g *backend.Group) {
	if !slices.ContainsFunc(g.Policies, func(p backend.Policy) bool { return p.Algorithm.Kind().Leased() }) {
		return
	}
	name := qs.nameOf(&Call{Key: g.Key, Policies: g.Policies, Shards: g.Shards})
	qs.mu.Lock()
	defer qs.mu.Unlock()
	//mutant:freed-slot-wakes
	if q := qs.mu.queues[name]; q != nil && q.first != nil && q.first.polls.Load() {
		q.first.awake()
	}
}

// awake ends the sleep of a head. The caller holds the lock.
func (w *waiter) awake() {
	select {
	case w.notify <- struct{}{}:
	default: // it has been notified and did not sleep since
	}
}

// queueName names a queue. The list is a hash. Lists that collide share a queue, so
// their waiters may be decided one after the other for no reason; no count differs.
type queueName struct {
	key  string
	list uint64
}

// remembered is how long an empty queue stays, since its next waiter has the same
// rivals.
const remembered = time.Second

// queue has the waiters of a key in the order of their arrival. The first is the head.
type queue struct {
	first, last *waiter   // guarded by Queues.mu, as are the waiters' links
	emptied     time.Time // guarded by Queues.mu: when the last waiter was removed
	contest     contest   // of the head's goroutine; the next head gets it under Queues.mu
}

// waiter is a call in a queue. The head's goroutine may decide it.
type waiter struct {
	call       Call
	since      time.Time
	notify     chan struct{} // gets an element when the waiter is the head or decided, and when a head must not sleep on; has room for one
	next, prev *waiter       // guarded by Queues.mu
	until      time.Time     // guarded by Queues.mu: as the head it is denied until then, unless units are given back
	taking     chan struct{} // guarded by Queues.mu: closed when the take that includes the waiter has ended; nil: none
	polls      atomic.Bool   // it sleeps until it looks for a slot again
	head       bool          // guarded by Queues.mu: it was notified that it is the head
	decided    bool          // guarded by Queues.mu: answer is set
	removed    bool          // guarded by Queues.mu: it left the queue undecided
	place      *place        // at the call's gate; nil: the call has no gate
	answer
}

// answer is how a waiter was decided.
type answer struct {
	Answer
	behind int64 // calls of the take that came after this one
}

// nameOf returns the name of the call's queue.
func (qs *Queues) nameOf(c *Call) queueName {
	var h maphash.Hash
	h.SetSeed(qs.seed)
	for i := range c.Policies {
		p := &c.Policies[i]
		_, _ = h.WriteString(p.Name)
		maphash.WriteComparable(&h, p.Algorithm.Identity())
	}
	maphash.WriteComparable(&h, max(c.Shards, 1))
	return queueName{c.Key, h.Sum64()}
}

// join appends the waiter to its queue. If it surely passes only after its deadline, it
// is refused: q is nil, and tooLate is the time until it passes, at the earliest.
func (qs *Queues) join(w *waiter, deadline time.Time) (q *queue, tooLate time.Duration) {
	name := qs.nameOf(&w.call)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q = qs.mu.queues[name]
	if q == nil {
		qs.sweep(w.since)
		//mutant:rivals-at-first
		q = &queue{contest: fresh}
		qs.mu.queues[name] = q
	} else if q.first == nil && w.since.Sub(q.emptied) > remembered {
		q.contest = fresh
	}
	//mutant:refused-in-queue
	if h := q.first; h != nil && !deadline.IsZero() && h.until.After(deadline) && w.call.alike(&h.call) {
		return nil, h.until.Sub(w.since)
	}
	if g := w.call.Gate; g != nil {
		w.place = &place{queue: name, weight: w.call.Weight, turn: make(chan struct{}, 1), index: -1}
	}
	if w.prev = q.last; q.last == nil {
		q.first = w
		q.promote()
	} else {
		q.last.next = w
	}
	q.last = w
	return q, 0
}

// sweep deletes empty queues, faster than new ones are made. The caller holds the lock.
func (qs *Queues) sweep(now time.Time) {
	looks := 4
	for name, q := range qs.mu.queues {
		//mutant:queues-swept
		if q.first == nil && now.After(q.emptied.Add(remembered)) {
			delete(qs.mu.queues, name)
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// leave removes an undecided waiter, and makes the first one the head. It returns false
// if the waiter was decided: then its units are its own.
func (qs *Queues) leave(q *queue, w *waiter) bool {
	for {
		qs.mu.Lock()
		taking := w.taking
		if w.decided || taking == nil {
			break
		}
		qs.mu.Unlock()
		//mutant:leaves-after-take
		<-taking // the store's budget bounds it
	}
	defer qs.mu.Unlock()
	switch {
	case w.decided:
		return false
	//mutant:leaves-once
	case !w.removed: // head.wait calls leave again
		w.removed = true
		q.remove(w)
		q.promote()
	}
	return true
}

// remove removes a waiter from the queue. The caller holds the lock.
func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if q.first == nil {
		q.emptied = time.Now()
	}
}

// promote notifies the first waiter, once, that it is the head, and takes it to its
// gate. So it is at the gate before the turn of the last head ends. The caller holds the
// lock.
func (q *queue) promote() {
	w := q.first
	if w == nil || w.head {
		return
	}
	w.head = true
	if invariant.Checked {
		invariant.Holds(w.next == nil || !w.next.head, "a queue has one head")
	}
	w.notify <- struct{}{} // has room, since it is undecided
	if w.place != nil {
		w.call.Gate.enter(w.place)
	}
}

// group returns the head and those right behind it that one take can serve, at most n.
// They stay in the queue until the take has ended.
func (qs *Queues) group(head *waiter, n int64) (group []*waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	taking := make(chan struct{})
	for w := head; w != nil && n > 0 && (w == head || w.call.alike(&head.call)); w = w.next {
		w.taking = taking
		group = append(group, w)
		n--
	}
	return group
}

// waiting returns how many waiters one take could serve, up to n.
func (qs *Queues) waiting(head *waiter, n int64) (waiting int64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for w := head; w != nil && waiting < n && (w == head || w.call.alike(&head.call)); w = w.next {
		waiting++
	}
	return waiting
}

// end ends the take of a group. Its waiters may leave if it has not decided them.
func (qs *Queues) end(group []*waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	taking := group[0].taking
	close(taking)
	for _, w := range group {
		//mutant:next-take-goes-on
		if w.taking == taking { // or the take of the next head has it
			w.taking = nil
		}
	}
}

// decide answers the waiters of a take, removes them, and makes the next one the head.
func (qs *Queues) decide(q *queue, group []*waiter, a Answer) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i, w := range group {
		if invariant.Checked {
			invariant.Holds(w == q.first && !w.decided, "a take decides the first waiters of its queue, in their order")
		}
		w.decided, w.Answer, w.behind = true, a.of(i), int64(len(group)-1-i)
		if w.place != nil && a.Err == nil {
			w.call.Gate.served(w.place)
		}
		q.remove(w)
		if i > 0 {
			w.notify <- struct{}{} // has room, since the waiter was not the head
		}
	}
	q.promote()
}

// of returns the answer to the i-th call of a take. The call is one of the first ones, which a
// shadow was charged, or it is not.
func (a Answer) of(i int) Answer {
	//mutant:shadow-of-each-waiter
	if !slices.ContainsFunc(a.States, func(s backend.State) bool { return i < int(s.Passed) && s.RetryAfter > 0 }) {
		return a
	}
	a.States = slices.Clone(a.States)
	for j := range a.States {
		if s := &a.States[j]; i < int(s.Passed) {
			s.RetryAfter = 0
		}
	}
	return a
}

// isDecided reports whether the waiter has its answer.
func (qs *Queues) isDecided(w *waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.decided
}

// deny notes until when a call such as the head's is denied.
func (qs *Queues) deny(head *waiter, until time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	head.until = until
}

// alike reports whether one take can serve both calls: the same costs of the same
// policies.
func (c *Call) alike(o *Call) bool {
	if c.Single || o.Single || len(c.Costs) != len(o.Costs) || !slices.Equal(c.Costs, o.Costs) {
		return false
	}
	a, b := c.Policies, o.Policies
	return &a[0] == &b[0] || slices.Equal(a, b)
}
