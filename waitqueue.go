package headgate

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// queues are the queues of the waiters on a store, one per key and list of policies
// that counts alike. All limiters on the store share them, so that none overtakes
// another's waiters.
type queues struct {
	seed    maphash.Seed
	bounded bool // the store decides in bounded time, also where the context does not end
	mu      struct {
		sync.Mutex
		queues map[queueName]*queue
	}
}

// queuesOf returns the queues of all limiters on s.
func queuesOf(s backend.Store) *queues {
	shared := layer.Of(s)
	if shared == nil {
		return newQueues(false)
	}
	type key struct{}
	return shared.Value(key{}, func() any { return newQueues(true) }).(*queues)
}

// queueName names a queue. The list is a hash: lists that collide share a queue, so
// their waiters may be served one after the other for no reason, and no count differs.
type queueName struct {
	key  string
	list uint64
}

// remembered is how long an empty queue stays, since its next waiter has the same
// rivals.
const remembered = time.Second

// queue has the waiters of a key in the order of their arrival. The first one, the
// head, asks the store, for itself and for those behind it that ask for the same.
type queue struct {
	name        queueName
	first, last *waiter   // guarded by queues.mu, as are the waiters' links
	emptied     time.Time // guarded by queues.mu: when the last waiter left
	contest               // the head's alone, handed on under queues.mu
}

// waiter is a call that waits. Its caller's goroutine serves it, or the head's does.
type waiter struct {
	next, prev *waiter // guarded by queues.mu
	limiter    *Limiter
	call       Call
	reserves   bool // it wants a reservation, which no other waiter's take can be
	since      time.Time
	notify     chan struct{} // gets a token when the waiter is the head, or decided
	until      time.Time     // guarded by queues.mu: as the head it is denied until then, if nothing is given back
	taken      chan struct{} // guarded by queues.mu: closed when the take that includes the waiter has ended; nil: none
	decided    bool          // guarded by queues.mu: answer is set
	left       bool          // guarded by queues.mu: it is in no queue any more
	answer
}

// answer is what came of a wait.
type answer struct {
	decision    Decision
	err         error
	states      []State // of each policy; shared, never written
	reservation *Reservation
}

func newQueues(bounded bool) *queues {
	q := &queues{seed: maphash.MakeSeed(), bounded: bounded}
	q.mu.queues = map[queueName]*queue{}
	return q
}

// nameOf returns the queue of a call on the key under these policies.
func (qs *queues) nameOf(key string, policies []Policy) queueName {
	var h maphash.Hash
	h.SetSeed(qs.seed)
	for i := range policies {
		p := &policies[i]
		_, _ = h.WriteString(p.Name)
		maphash.WriteComparable(&h, p.Algorithm.Identity())
		maphash.WriteComparable(&h, max(p.Shards, 1))
	}
	return queueName{key, h.Sum64()}
}

// join appends the waiter to its queue. A waiter that surely passes only after its
// deadline is refused: in how long it passes at the earliest.
func (qs *queues) join(w *waiter, deadline time.Time) (q *queue, refused time.Duration) {
	name := qs.nameOf(w.call.Key, w.limiter.policies)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q = qs.mu.queues[name]
	if q == nil {
		qs.sweep(w.since)
		q = &queue{name: name, contest: begun} // mutant: rivals-at-first
		qs.mu.queues[name] = q
	} else if q.first == nil && w.since.Sub(q.emptied) > remembered {
		q.contest = begun
	}
	if h := q.first; h != nil && !deadline.IsZero() && h.until.After(deadline) && w.alike(h) { // mutant: refused-in-queue
		return nil, h.until.Sub(w.since)
	}
	if w.prev = q.last; q.last == nil {
		q.first = w
		w.notify <- struct{}{}
	} else {
		q.last.next = w
	}
	q.last = w
	return q, 0
}

// sweep removes empty queues, faster than new ones come.
func (qs *queues) sweep(now time.Time) {
	looks := 4
	for name, q := range qs.mu.queues {
		if q.first == nil && now.Sub(q.emptied) > remembered { // mutant: queues-swept
			delete(qs.mu.queues, name)
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// leave removes a waiter that gave up, and makes the next one the head. It returns
// false where the waiter was decided meanwhile: what was taken for it is its own.
func (qs *queues) leave(q *queue, w *waiter) bool {
	for {
		qs.mu.Lock()
		taken := w.taken
		if w.decided || taken == nil {
			break
		}
		qs.mu.Unlock()
		<-taken // the store's budget bounds it; mutant: leaves-after-take
	}
	defer qs.mu.Unlock()
	switch {
	case w.decided:
		return false
	case !w.left: // wait calls leave again; mutant: leaves-once
		w.left = true
		q.remove(w)
		q.promote()
	}
	return true
}

// remove takes a waiter out of the queue. The caller holds the lock.
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

// promote tells the first waiter that it is the head, once. The caller holds the lock.
func (q *queue) promote() {
	if q.first != nil {
		select {
		case q.first.notify <- struct{}{}:
		default:
		}
	}
}

// group returns the head and those right behind it that one take can serve, at most n.
// They do not leave until the take has ended.
func (qs *queues) group(head *waiter, n int64) (group []*waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	taken := make(chan struct{})
	for w := head; w != nil && n > 0 && (w == head || w.alike(head)); w = w.next {
		w.taken = taken
		group = append(group, w)
		n--
	}
	return group
}

// waiting returns how many waiters one take could serve, up to n.
func (qs *queues) waiting(head *waiter, n int64) (waiting int64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for w := head; w != nil && waiting < n && (w == head || w.alike(head)); w = w.next {
		waiting++
	}
	return waiting
}

// end ends the take of a group, and lets its waiters leave if it has not decided them.
func (qs *queues) end(group []*waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	close(group[0].taken)
	for _, w := range group {
		w.taken = nil
	}
}

// decide answers the waiters of a take, and makes the next one the head.
func (qs *queues) decide(q *queue, group []*waiter, a answer) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i, w := range group {
		w.decided, w.answer = true, a
		q.remove(w)
		if i > 0 {
			w.notify <- struct{}{} // has room, since the waiter was not the head
		}
	}
	q.promote()
}

// isDecided reports whether the waiter has its answer.
func (qs *queues) isDecided(w *waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.decided
}

// deny notes until when a call as the head's is denied.
func (qs *queues) deny(head *waiter, until time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	head.until = until
}

// alike reports whether one take can serve both: the same costs of the same policies.
func (w *waiter) alike(o *waiter) bool {
	if w.reserves || o.reserves || len(w.call.Costs) != len(o.call.Costs) || !slices.Equal(w.call.Costs, o.call.Costs) {
		return false
	}
	a, b := w.limiter.policies, o.limiter.policies
	return &a[0] == &b[0] || slices.Equal(a, b)
}

// cost returns what the waiter's call costs the i-th policy.
func (w *waiter) cost(i int) int64 {
	if w.call.Costs == nil {
		return 1
	}
	return w.call.Costs[i]
}
