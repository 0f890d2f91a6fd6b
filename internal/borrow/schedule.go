package borrow

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// schedule has the instants at which homes are due: before the end of a loan, and while
// nothing is held once in a term. A home that is due borrows again, gives back, or is
// removed. Instants lie on a grid, so that one round trip serves many homes.
type schedule struct {
	mu struct {
		sync.Mutex
		at    map[time.Duration][]*home
		next  time.Duration // when the timer runs; 0: never
		timer *time.Timer
	}
}

// grid is how many instants of the schedule lie in a term.
const grid = 16

// wake makes the home due after a while, and not at another instant.
func (h *home) wake(after time.Duration) { h.wakeOn(after, h.term/grid) }

// wakeOn is wake on a grid of instants that lie so far from each other.
func (h *home) wakeOn(after, grain time.Duration) {
	s, now := h.store, h.store.now()
	due := now + max(after, 0)
	//mutant:homes-due-together
	due -= due % grain
	q := &s.schedule
	q.mu.Lock()
	defer q.mu.Unlock()
	if h.due == due {
		return
	}
	if q.mu.at == nil {
		q.mu.at = map[time.Duration][]*home{}
	}
	h.due = due
	q.mu.at[due] = append(q.mu.at[due], h)
	if q.mu.next == 0 || due < q.mu.next {
		q.runAt(s, due, now)
	}
}

// runAt sets the timer. Its caller has the lock.
func (q *schedule) runAt(s *Store, due, now time.Duration) {
	q.mu.next = due
	if q.mu.timer == nil {
		q.mu.timer = time.AfterFunc(due-now, s.run)
		return
	}
	q.mu.timer.Reset(due - now)
}

// run tends the homes that are due. Once the store is closing, it ends the timer.
func (s *Store) run() {
	//mutant:closing-ends-timer
	if s.closing() {
		return
	}
	var all []*pending
	for _, h := range s.schedule.take(s) {
		if p := h.tend(); p != nil {
			all = append(all, p)
		}
	}
	s.send(all)
}

// take returns the homes that are due, and sets the timer for the next.
func (q *schedule) take(s *Store) (homes []*home) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := s.now()
	q.mu.next = 0
	var next time.Duration
	for due, list := range q.mu.at {
		if due > now {
			if next == 0 || due < next {
				next = due
			}
			continue
		}
		for _, h := range list {
			if h.due == due { // else it was made due at another instant
				h.due = -1
				homes = append(homes, h)
			}
		}
		delete(q.mu.at, due)
	}
	if next > 0 {
		q.runAt(s, next, now)
	}
	return homes
}

// tend returns the Borrow that the home needs now, or nil.
func (h *home) tend() *pending {
	if !h.busy.tryLock() {
		h.wake(h.term / 8)
		return nil
	}
	at := h.store.now()
	demand, holds := h.demand(at), int64(at) < h.end.Load()
	switch {
	//mutant:scarce-units-go-back
	case holds && !h.own.scarce && h.can(at, demand):
		h.wake(h.term)
		return h.prepare(h.request(), enough(demand))
	case h.owes(at):
		h.wake(h.term)
		return h.prepare(h.request(), 0)
	case demand < 1 && !holds:
		h.store.homes.remove(h)
	default:
		h.wake(h.term)
	}
	h.busy.unlock()
	return nil
}

// send sends Borrows of several homes at once.
func (s *Store) send(all []*pending) {
	if len(all) == 0 {
		return
	}
	rs, answers := make([]backend.Request, len(all)), make([]backend.Answer, len(all))
	for i, p := range all {
		rs[i] = p.request
	}
	layer.DoAll(context.Background(), s.next, rs, answers)
	for i, p := range all {
		p.request.Sub = rs[i].Sub // which the layer below has chosen
		p.answered(&answers[i].Decision, answers[i].Err)
		p.home.busy.unlock()
	}
}
