package borrow

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// least is how many units a length must need for a lease to be worth a request.
const least = 2

// renew borrows in the background.
func (h *home) renew() {
	r := backend.Request{Op: backend.Borrow, Group: backend.Group{Key: h.key.key, Policies: h.list}}
	var d backend.Decision
	_ = h.borrow(context.Background(), &r, &d, h.demand(h.store.now()))
}

// borrow sends a Borrow with the cost of the request, and reads its answer. Its caller has
// busy, which ends with it. Where nothing can be borrowed now, a call goes to the store as
// ever.
func (h *home) borrow(ctx context.Context, r *backend.Request, d *backend.Decision, demand float64) error {
	defer h.busy.Store(false)
	begin := h.store.now()
	switch {
	case h.can(begin, demand):
		return h.send(ctx, r, d, int64(math.Ceil(demand*spare)))
	case r.Op == backend.Take:
		return h.store.ask(ctx, r, d)
	}
	return nil
}

// spare is how many times the demand of a length is borrowed: what is left becomes part of
// the next lease.
const spare = 1.25

// send sends a Borrow for so many units; 0 gives back what is left.
func (h *home) send(ctx context.Context, r *backend.Request, d *backend.Decision, want int64) error {
	q, begin := *r, h.store.now()
	q.Op, q.Cost, q.Costs, q.Each = backend.Borrow, r.CostOf(0), nil, make([]backend.State, len(h.list))
	if want == 0 {
		h.end.Store(0) // before the used units are read: no unit is used after it; mutant: lease-in-use-settled
	} else if spare := h.left.Load() - want; spare > 0 { // mutant: fewer-are-kept
		h.left.Add(-spare)
		h.own.given -= spare
		h.store.stats.back.Add(spare)
	}
	loan := h.loan(begin, want)
	q.Loan = &loan
	err := h.store.next.Do(ctx, &q, d)
	copy(r.Each, q.Each)
	h.answered(begin, &loan, &q, d, err)
	return err
}

// can reports whether units can be borrowed now: calls need some, the link is short for
// the length, and not too many replies were lost of late.
func (h *home) can(at time.Duration, demand float64) bool {
	o := &h.own
	if demand < least || h.store.link.far(h.length) { // mutant: long-link-lends-nothing
		h.try.Store(int64(at + h.length))
		return false
	}
	if end := h.end.Load(); int64(at) >= end+int64(h.length) {
		o.held = o.held[:0] // the store has charged them whole
	} else if len(o.held) == backend.MaxHeld {
		h.try.Store(end + int64(h.length))
		return false
	}
	return true
}

// loan returns what a Borrow asks for: it settles what was used, and keeps what is left.
// Units that are taken after left was read are part of those kept. A call that took one
// before that, and has not read the clock, finds another turn and does not use it.
func (h *home) loan(at time.Duration, want int64) backend.Loan {
	o := &h.own
	o.seq++
	l := backend.Loan{ID: h.id, Seq: o.seq, Length: h.length, Want: min(want, h.most())}
	_, _ = rand.Read(l.Epoch[:])
	left := h.left.Load()
	h.turn.Add(1)
	if int64(at) < h.end.Load() {
		l.Keep = max(left, 0)
	}
	used := o.given - left
	h.store.stats.used.Add(used - o.told)
	o.told = used
	for i, b := range o.held {
		l.Held[i] = backend.Held{Seq: b.seq, Used: used - b.used}
	}
	o.held = append(o.held, lending{o.seq, used})
	return l
}

// most returns the most units that a policy can lend.
func (h *home) most() int64 {
	most := int64(math.MaxInt64)
	for i := range h.list {
		if !h.list[i].Shadow {
			most = min(most, h.list[i].Algorithm.Max())
		}
	}
	return most
}

// answered reads the answer to a Borrow.
func (h *home) answered(begin time.Duration, l *backend.Loan, q *backend.Request, d *backend.Decision, err error) {
	o, at := &h.own, h.store.now()
	h.store.stats.borrows.Add(1)
	if err == nil && d.Source != backend.FromStore { // a failure mode has answered, or a known denial
		err = cmp.Or(d.Err, backend.ErrPerhapsCounted)
	}
	switch {
	case err == nil:
		h.store.tripped(at, at-begin)
		h.lent(begin, at, l, q)
		return
	case errors.Is(err, backend.ErrPerhapsCounted): // the next one names both leases
		h.store.stats.lost.Add(1)
	case errors.Is(err, backend.ErrNotHeld):
		o.held = o.held[:0]
		h.end.Store(0)
	default: // nothing was counted
		o.held = o.held[:len(o.held)-1]
	}
	h.try.Store(int64(at + h.length/2))
	h.wake(h.length / 2)
}

// lent adds what was lent to what is left. The lease ends so long after the request was
// sent as it does after the store's instant, which was later, and a thousandth of the length
// earlier, for clocks of different speed. A reply that comes after that lends nothing.
func (h *home) lent(begin, at time.Duration, l *backend.Loan, q *backend.Request) {
	o, units := &h.own, l.Lent.Units
	last := o.held[len(o.held)-1]
	more := units - (o.given - last.used)      // in place of those that were left
	end := begin + l.Lent.Ends - h.length/1000 // mutant: lease-from-before-request
	o.held = append(o.held[:0], last)
	if units == 0 {
		end, o.held = 0, o.held[:0]
	}
	h.see(q)
	h.store.stats.lent.Add(max(0, units-l.Keep))
	o.given += more
	trip := min(max(time.Duration(h.store.trip.Load()), h.length/100), h.length/8)
	h.low.Store(int64(o.rate * float64(4*trip) / float64(h.length)))
	h.end.Store(int64(end))
	h.left.Add(more)
	next := at // when another Borrow may be sent
	switch {
	case units == 0:
		next, end = at+h.length/2, at+h.length+4*trip
	case units < l.Want:
		next = at + h.length/8
	}
	h.try.Store(int64(next))
	h.wake(end - at - max(4*trip, h.length/10))
}

// see keeps the states that calls at home are answered with.
func (h *home) see(q *backend.Request) {
	s := &snapshot{states: q.Each}
	for i := range s.states {
		if !h.list[i].Shadow {
			s.states[i].RetryAfter = 0
		}
	}
	s.binds = backend.Binding(h.list, s.states)
	h.seen.Store(s)
}

// tripped notes how long a Borrow took.
func (s *Store) tripped(at, took time.Duration) {
	s.link.note(at, took)
	s.trip.Store(mean(s.trip.Load(), int64(took), 8))
}

// mean returns a mean of which the last value is the n-th part.
func mean(was, last, n int64) int64 {
	if was == 0 {
		return last
	}
	return was + (last-was)/n
}
