package borrow

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// The timer of a home runs before the end of a lease, and while nothing is held once in a
// length. It borrows again, gives back, or removes the home.

// start makes a new home's timer.
func (h *home) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.timer = time.AfterFunc(h.length, h.due)
}

// wake sets the timer.
func (h *home) wake(after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.timer != nil && !h.mu.closed {
		h.mu.timer.Reset(max(after, 0))
	}
}

func (h *home) due() {
	if h.store.shared.Closed.Load() {
		h.store.homes.remove(h)
		return
	}
	if !h.busy.CompareAndSwap(false, true) {
		h.wake(h.length / 8)
		return
	}
	at := h.store.now()
	demand, holds := h.demand(at), int64(at) < h.end.Load()
	switch {
	case demand >= least && holds:
		h.wake(h.length)
		h.renew()
		return
	case holds && h.left.Load() > 0: // mutant: rest-is-given-back
		h.giveBack()
		h.wake(h.length)
	case demand < 1 && !holds:
		h.store.homes.remove(h)
	default:
		h.wake(h.length)
	}
	h.busy.Store(false)
}

// giveBack settles what was used, and frees what is left. Its caller has busy.
func (h *home) giveBack() {
	h.store.stats.back.Add(max(0, h.left.Load()))
	r := backend.Request{Op: backend.Borrow, Group: backend.Group{Key: h.key.key, Policies: h.list}}
	_ = h.send(context.Background(), &r, new(backend.Decision), 0)
}

// close gives back what is held, and stops the timer.
func (h *home) close() {
	h.mu.Lock()
	h.mu.closed = true
	if h.mu.timer != nil {
		h.mu.timer.Stop()
	}
	h.mu.Unlock()
	h.try.Store(1<<63 - 1)
	if h.busy.CompareAndSwap(false, true) && int64(h.store.now()) < h.end.Load() {
		h.giveBack() // busy stays, so that nothing is borrowed any more
	}
	h.end.Store(0)
}
