package borrow

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/invariant"
)

// least is how many units a term must need for a loan to be worth a request.
const least = 2

// pending is a Borrow under way. Its home is busy.
type pending struct {
	home    *home
	begin   time.Duration // before the request was sent
	end     int64         // the home's then; a Reset changes it
	request backend.Request
	loan    backend.Loan
}

// renew borrows in the background. Its caller has busy.
func (h *home) renew() {
	at := h.store.now()
	if demand := h.demand(at); h.can(at, demand) {
		h.store.send([]*pending{h.prepare(h.request(), h.wants(demand, false))})
		return
	}
	h.busy.unlock()
}

// borrow decides a call by a Borrow. If nothing is to be borrowed now, it sends the Take. Its caller
// has the lock, which ends with it.
func (s *Store) borrow(ctx context.Context, h *home, r *backend.Request, d *backend.Decision) error {
	at := s.now()
	demand, paused := h.demand(at), int64(at) < h.try.Load()
	want := h.wants(demand, paused)
	if paused && want == 0 {
		defer h.busy.unlock()
		err := s.ask(ctx, h, r, d)
		h.denies(r, d, err)
		return err
	}
	if !h.can(at, demand) {
		h.busy.unlock()
		return s.ask(ctx, h, r, d)
	}
	defer h.busy.unlock()
	p := h.prepare(r, want)
	err := s.next.Do(ctx, &p.request, d)
	copy(r.Each, p.request.Each)
	p.answered(d, err)
	h.denies(r, d, err)
	return err
}

// wants returns how many units the next Borrow asks for. Near the limit they are those of calls that
// wait: they are used at once, so that the store denies no other process for units at rest.
func (h *home) wants(demand float64, paused bool) int64 {
	if h.own.scarce || paused {
		//mutant:waiting-calls-borrow
		return h.waits.Load()
	}
	return enough(demand)
}

// enough returns how many units are borrowed for the demand of a term. They are more than that is
// on average until the next Borrow, at half of the term. What is left becomes part of the next
// loan.
func enough(demand float64) int64 {
	demand *= 5. / 8
	return int64(math.Ceil(max(demand*1.25, demand+2*math.Sqrt(demand)+1)))
}

// request returns one of no call, from which a Borrow is prepared.
func (h *home) request() *backend.Request { return &backend.Request{Group: h.of} }

// prepare makes a Borrow of so many units that decides the request, if it has a cost; 0
// units gives back what is left.
func (h *home) prepare(r *backend.Request, want int64) *pending {
	if invariant.Checked {
		invariant.Holds(h.busy.locked(), "a Borrow is of the one that has busy")
	}
	p := &pending{home: h, begin: h.store.now(), request: *r}
	q := &p.request
	q.Op, q.Cost, q.Costs, q.Run, q.UpTo, q.Each = backend.Borrow, r.CostOf(0), nil, 0, false, make([]backend.State, len(h.of.Policies))
	if want == 0 {
		if int64(p.begin) < h.end.Load() {
			h.store.stats.back.Add(max(0, h.left.Load()))
		}
		//mutant:loan-in-use-settled
		h.end.Store(0) // before the used units are read: no unit is used after it
		//mutant:fewer-are-kept
	} else if spare := h.left.Load() - want; spare > 0 {
		h.left.Add(-spare)
		h.own.given -= spare
		h.store.stats.back.Add(spare)
	}
	//mutant:settled-where-lent
	if len(h.own.held) > 0 {
		q.Sub = h.own.sub
	}
	p.loan, p.end = h.loan(p.begin, want), h.end.Load()
	q.Loan = &p.loan
	return p
}

// can reports whether units can be borrowed now. The store is not closing, calls need some,
// the link is short for the term, and not too many of the last replies were lost.
func (h *home) can(at time.Duration, demand float64) bool {
	//mutant:closing-borrows-nothing
	if h.store.closing() { // read by the one that has busy: giveBack comes after it, or has been here
		return false
	}
	//mutant:long-link-lends-nothing
	if demand < least || h.store.link.far(h.term) {
		h.pause(at+h.term, never)
		return false
	}
	return h.names(at)
}

// owes reports whether a loan is unsettled, or may be, and a Borrow can settle it.
func (h *home) owes(at time.Duration) bool {
	//mutant:rest-is-given-back
	return (h.own.holds > 0 || h.own.doubt) && at < h.own.until && h.names(at)
}

// names reports whether a Borrow can name all loans that the store may hold.
func (h *home) names(at time.Duration) bool {
	o := &h.own
	if at >= o.until {
		o.held = o.held[:0] // the store has charged them whole
		//mutant:no-loan-unnamed
	} else if len(o.held) >= backend.MaxHeld {
		h.pause(o.until, never)
		return false
	}
	return true
}

// loan returns what a Borrow asks for: it settles what was used, and keeps what is left.
// Units that are taken after left was read are part of those kept. A call that took one
// before that, and has not read the clock, finds another turn and does not use it.
func (h *home) loan(at time.Duration, want int64) backend.Loan {
	o := &h.own
	//mutant:each-borrow-its-number
	o.seq++ // a Borrow is never sent again
	l := backend.Loan{ID: h.id, Seq: o.seq, Term: h.term, Want: min(want, most(h.of.Policies))}
	_, _ = rand.Read(l.Epoch[:])
	if slices.ContainsFunc(h.of.Policies, func(p backend.Policy) bool { return p.Shadow }) {
		l.Each = make([]int64, len(h.of.Policies))
	}
	left := h.left.read()
	if int64(at) < h.end.Load() {
		l.Keep = max(left, 0)
	}
	used := o.given - left
	if invariant.Checked {
		invariant.Holds(left <= o.given, "no more units are left than were given")
	}
	h.store.stats.used.Add(used - o.told)
	o.told = used
	for i, b := range o.held {
		l.Held[i] = backend.Held{Seq: b.seq, Used: used - b.used}
	}
	o.held = append(o.held, lending{o.seq, used})
	return l
}

// most returns the most units that a list can lend.
func most(list []backend.Policy) int64 {
	//mutant:loan-within-bounds
	most := backend.MaxLoan
	for _, p := range backend.Enforced(list) {
		most = min(most, p.Algorithm.Max())
	}
	return most
}

// answered reads the answer to a Borrow.
func (p *pending) answered(d *backend.Decision, err error) {
	h, at := p.home, p.home.store.now()
	o := &h.own
	o.sub = p.request.Sub
	if err == nil && d.Source != backend.FromStore { // a failure mode has answered, or a known denial
		err = cmp.Or(d.Err, backend.ErrPerhapsCounted)
	}
	lost := errors.Is(err, backend.ErrPerhapsCounted)
	if count := &h.store.stats; lost {
		count.lost.Add(1)
	} else {
		count.answered.Add(1)
	}
	switch {
	case err == nil:
		h.store.tripped(at, at-p.begin)
		charged := o.charged(&p.loan)
		p.lent(at)
		if h.store.report != nil {
			h.store.report(charged, &p.request, d)
		}
		return
	case lost: // the next one names both loans
		//mutant:lost-loan-is-named
		o.doubt, o.until = true, max(o.until, at+(backend.MaxTerms+1)*h.term)
	case errors.Is(err, backend.ErrNotHeld):
		o.held = o.held[:0]
		h.end.Store(0)
	default: // nothing was counted
		o.held = o.held[:len(o.held)-1]
	}
	h.pause(at+h.term/2, never)
	h.wake(h.term / 2)
}

// charged returns how many units the store has charged since the last Borrow of which an
// answer came. The first loan that a Borrow names is that one's, so the units that a lost
// Borrow has reported are among those used of it. A loan that was never settled was charged
// whole, and of one that a Reset ended nothing is counted.
func (o *own) charged(l *backend.Loan) (n int64) {
	switch s := l.Lent.Settled; {
	//mutant:lost-settlement-reported
	case s == backend.Charged || s == backend.NotHeld && l.Held[1].Seq > 0:
		n = l.Held[0].Used
	//mutant:unsettled-loan-reported
	case s != backend.NotHeld:
		n = o.holds
	}
	o.holds = l.Lent.Units
	return n
}

// lent adds what was lent to what is left. The loan lasts from when the request was sent,
// which was before the store's instant. It ends a thousandth of the term early, for clocks
// of different speed. A reply that comes after that lends nothing.
//
// If the key was reset meanwhile, the Borrow may have run before or after the Reset. Either
// way no unit is used, and the loan is settled with 0: it is not held, or is given back.
func (p *pending) lent(at time.Duration) {
	h, l := p.home, &p.loan
	o, units := &h.own, l.Lent.Units
	last := o.held[len(o.held)-1]
	more := units - (o.given - last.used) // in place of those that were left
	//mutant:loan-from-before-request
	end := p.begin + l.Lent.Ends - h.term/1000
	o.held = append(o.held[:0], last)
	if units == 0 {
		end, o.held = 0, o.held[:0]
	}
	h.see(&p.request, l)
	h.store.stats.lent.Add(max(0, units-l.Keep))
	o.given += more
	o.doubt, o.until = false, at+l.Lent.Ends+(backend.MaxTerms-1)*h.term
	trip := min(max(time.Duration(h.store.trip.Load()), h.term/100), h.term/8)
	h.low.Store(min(int64(o.rate*float64(4*trip)/float64(h.term)), units/4)) // near the limit few are lent: they are used first
	h.left.Add(min(more, 0))                                                 // before the loan is longer, for a call that takes in between
	//mutant:reset-ends-what-comes
	reset := !h.end.CompareAndSwap(p.end, int64(end))
	h.left.Add(max(more, 0))
	//mutant:unused-after-reset
	if reset && units > 0 {
		o.held[0].used = o.given - h.left.Load()
		h.wake(0)
		return
	}
	h.plan(at, end, trip, l)
}

// plan decides when the next Borrow may be sent and when it is due. No loan follows for a while
// if the key has room for less than two round trips of calls. The same holds if the store recalls
// what it lent. Then what is left is used up, and the next call settles it and borrows only for
// calls that wait. What is still left when the loan ends goes back. So near the limit no process
// holds units for long while the store denies others. A new loan needs twice that room.
func (h *home) plan(at, end, trip time.Duration, l *backend.Loan) {
	units, seen, next := l.Lent.Units, h.seen.Load(), at
	need := h.needs(l, trip)
	//mutant:last-units-not-lent
	h.own.scarce = units > 0 && seen.states[seen.binds].Remaining < need
	switch {
	case units == 0:
		next, end = at+h.term/2, at+h.term+4*trip
	case units < l.Want:
		next = at + trip
	}
	h.pause(next, 2*need)
	due := end - max(2*trip, h.term/10)
	switch {
	case h.own.scarce:
		h.low.Store(-1)
		next = at // what is left goes back before the loan ends
	//mutant:closing-window-not-renewed
	case units > 0 && due <= at+h.term/grid: // the window closes, and another loan would end with it too
		h.low.Store(-1)
		due = end + h.term/grid
		//mutant:reported-in-its-window
		if h.carries() { // what is charged whole would count in the next window too
			h.own.scarce = true
			h.wakeOn(end-2*trip-at, trip)
			return
		}
	}
	//mutant:reported-at-half
	if !h.own.scarce {
		due = min(due, at+h.term/2)
	}
	h.wake(max(due, next) - at)
}

// needs returns how much room a key must have for another loan, of which a fair share is lent.
func (h *home) needs(l *backend.Loan, trip time.Duration) int64 {
	//mutant:recall-pauses
	if l.Lent.Recalled {
		return never / 2 // room does not end the pause
	}
	//mutant:alone-lends-longer
	if l.Lent.Borrowers == 1 { // what it holds denies no other process
		trip = time.Duration(h.store.trip.Load())
	}
	return 2 * l.Lent.Borrowers * max(least, int64(h.own.rate*float64(2*trip)/float64(h.term)))
}

// carries reports whether the count of a window goes on into the next one.
func (h *home) carries() bool {
	return slices.ContainsFunc(h.of.Policies, func(p backend.Policy) bool { return p.Algorithm.Kind().Carries() })
}

// see keeps what calls at home are answered with: each passes.
func (h *home) see(q *backend.Request, l *backend.Loan) {
	s := &snapshot{states: q.Each, least: l.Each, ends: l.Lent.Ends}
	for i := range s.states {
		//mutant:loan-is-estimated
		s.states[i].RetryAfter, s.states[i].Known = 0, backend.Estimated
	}
	for i := range s.least {
		s.least[i] = l.Lent.Units - s.least[i]
	}
	s.binds = backend.Binding(h.of.Policies, s.states)
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
