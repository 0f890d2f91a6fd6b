// Package borrow lets a process decide most calls of a busy key by itself. It takes units
// of the key from the store in advance, for a short time, and answers calls from them.
//
// # How it works
//
// A key gets a home after two calls within a term and two within the next, or eight
// within one. Its next call that has to ask the store sends a Borrow in place of a Take:
// it is charged, and brings units home. Calls take from these, without a round trip. A call
// that finds none while another one is sent waits for what that brings, or for its denial.
// Before the units run out, or their loan ends, a Borrow in the background reports what
// was used and brings more.
// A spread key lends from one sub-key at a time, and its calls send no Borrow themselves.
// One sub-key may deny what another has units for.
// The units that are left stay in use meanwhile and become part of the next loan. When
// the key rests, they are given back.
// A call that is denied only because units are lent finds its room within a term. For ten
// seconds the store lends only while there is room for such a call.
//
// # Never over
//
// The store counts lent units as used until they are settled. A call is admitted at the
// instant at which this process last read the clock, after it took the unit:
//
//   - Before the end of the loan, by this process's clock from before the request was
//     sent. So the store counted the unit as lent then.
//   - Before the settle that reports the unit as used. A unit that was taken before the
//     count of used units was read, by a call that reads the clock after that, is
//     reported as used and not used: stock tells.
//
// A Borrow whose reply is lost may have run or not. Either way the store counts what
// this process holds, since the kept units are part of both loans. The next Borrow names
// both, each with what was used of it.
package borrow

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Store is a backend.Store over another. It answers as next does, and takes of keys that
// it has units of without asking next. Safe for concurrent use.
type Store struct {
	next   backend.Store
	now    func() time.Duration // the process's monotonic clock, since New
	shared *layer.Shared        // of the store at the end of next's
	homes  *homes
	stores *stores
	schedule
	report Report
	stats  counters
	trip   atomic.Int64 // how long a Borrow takes, in ns: the mean of the last ones
	link   link
}

type counters struct{ answered, lost, lent, back, used, denied atomic.Int64 }

// Stats counts what the wrapper did since it was made.
type Stats struct {
	Homes     int   // keys that have units, or had some a moment ago
	Borrows   int64 // requests that settled, lent or gave back
	Lost      int64 // of these: without an answer
	Lent      int64 // units that came
	GivenBack int64 // of these: units that were given back
	Used      int64 // of these: units that calls have used, as far as they are reported
	Denied    int64 // calls of one key that the store denied, and would have let pass if no unit were lent: some denials may be wrong
}

// Report receives a Borrow that the store has answered. charged is the units of calls decided
// from loans that it has charged, and that no earlier Borrow of the home had. A Report keeps
// nothing of the request.
type Report func(charged int64, r *backend.Request, d *backend.Decision)

// New returns the wrapper over next. store is what limiters on the store share. report may
// be nil.
func New(next backend.Store, store *layer.Shared, report Report) *Store {
	begin := time.Now()
	return &Store{next: next, now: func() time.Duration { return time.Since(begin) }, shared: store, homes: newHomes(), stores: storesOn(store), report: report}
}

// Stats returns what was counted up to now.
func (s *Store) Stats() Stats {
	c := &s.stats
	lost := c.lost.Load() // once: what is answered, the rest, never falls
	return Stats{int(s.homes.count.Load()), c.answered.Load() + lost, lost, c.lent.Load(), c.back.Load(), c.used.Load(), c.denied.Load()}
}

// Do decides one request: from units at home if it can.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	//mutant:later-alternative-not-at-home
	if ctx == nil || !s.lends(r) || r.Else { // alternatives before it are denied
		return s.next.Do(ctx, r, d)
	}
	err := s.decide(ctx, r, d)
	//mutant:denied-by-loans-counted
	if err == nil && len(r.And) == 0 && r.Op.Charges() && deniedByLoans(&r.Group, d) {
		s.stats.denied.Add(1)
	}
	return err
}

// decide decides a request of keys that lend.
func (s *Store) decide(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	switch {
	case r.Op != backend.Take || len(r.And) > 0 && !s.keys(ctx, r, d):
		return s.pass(ctx, r, d)
	case len(r.And) > 0:
		return nil
	}
	return s.take(ctx, r, d)
}

// keys answers a take of several keys from home, of alternatives the first one, and reports whether
// it did.
func (s *Store) keys(ctx context.Context, r *backend.Request, d *backend.Decision) bool {
	_, to := r.Alternative(0)
	first := layer.Slice(r, 0, to)
	//mutant:first-alternative-at-home
	return s.lends(&first) && s.all(ctx, &first, d)
}

// lends reports whether units of a key of the request are borrowed.
func (s *Store) lends(r *backend.Request) bool {
	for i := range 1 + len(r.And) {
		if g := r.GroupAt(i); len(g.Policies) > 0 && g.Borrow > 0 {
			return true
		}
	}
	return false
}

// take answers a take of one cost of every policy from home. Else the store decides it, by a Borrow
// if the key is called often, or what another call brings from the store.
func (s *Store) take(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	h, n := s.find(&r.Group)
	if h == nil {
		return s.next.Do(ctx, r, d)
	}
	//mutant:ended-call-takes-nothing
	if ctx.Err() != nil || s.closing() {
		return s.next.Do(ctx, r, d) // which returns the error, if the store is closed already
	}
	if left, ok := h.take(n); ok {
		h.answer(&r.Group, d, n, left)
		return nil
	}
	if r.UpTo {
		return s.ask(ctx, h, r, d)
	}
	switch may := h.missed(n); {
	case h.of.Shards > 1: // a share lends; the call is decided by all shares
		if may && h.busy.tryLock() {
			go h.renew()
		}
		return s.ask(ctx, h, r, d)
	case !h.shares():
		return s.ask(ctx, h, r, d)
	case h.busy.tryLock():
		return s.borrow(ctx, h, r, d)
	case s.shared.Budget == 0:
		return s.ask(ctx, h, r, d)
	}
	return s.wait(ctx, h, r, d, n)
}

// find finds or makes the home of a group that is taken, and returns the units of the call;
// nil if it has none.
func (s *Store) find(g *backend.Group) (h *home, n int64) {
	n, ok := costOf(g)
	if !ok {
		return nil, 0
	}
	if h = s.homes.find(g); h == nil && !g.UpTo { // what that asks for is not what calls need
		h = s.homes.seen(s, g, n, s.now())
	}
	return h, n
}

// ask passes a call of a key with a home on.
func (s *Store) ask(ctx context.Context, h *home, r *backend.Request, d *backend.Decision) error {
	err := s.pass(ctx, r, d)
	if err == nil && d.Source == backend.FromStore {
		h.asked(s.now(), d)
	}
	return err
}

// deniedByLoans reports whether the store has denied a call for which the policy that binds would
// have room if no unit were lent.
func deniedByLoans(g *backend.Group, d *backend.Decision) bool {
	if d.Allowed || d.Source != backend.FromStore {
		return false
	}
	by := slices.IndexFunc(g.Policies, func(p backend.Policy) bool { return p.Name == d.Policy })
	//mutant:cost-of-what-denied
	return by >= 0 && d.Used-d.Lent+g.CostOf(by) <= d.Limit
}

// costOf returns the units that a take costs of every policy, or false if it is none that
// is decided at home.
func costOf(g *backend.Group) (n int64, ok bool) {
	//mutant:costs-of-another-list
	if g.Costs != nil && len(g.Costs) != len(g.Policies) {
		return 0, false
	}
	n = g.CostOf(0)
	for i := range g.Costs {
		//mutant:costs-are-equal
		if g.Costs[i] != n {
			return 0, false
		}
	}
	n = g.Charged(0, g.Run)
	//mutant:refused-cost-is-no-demand
	return n, n > 0 && n <= most(g.Policies) && (g.Each == nil || len(g.Each) == len(g.Policies))
}

// Next returns the store below.
func (s *Store) Next() backend.Store { return s.next }

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next. The store's Close first gives back the units that homes hold.
func (s *Store) Close() error { return s.next.Close() }

// closing reports whether the store is being closed.
func (s *Store) closing() bool { return s.shared.Closing.Load() }

// giveBack gives back what all homes hold, within two of the store's budgets. Closing is set, so
// no Borrow begins. Those under way may lend: their homes follow when they have ended, if that
// is within a budget. What others hold is charged whole.
func (s *Store) giveBack() {
	end := s.now() + s.shared.Budget
	for homes := s.homes.all(); ; time.Sleep(time.Millisecond) {
		var all []*pending
		homes = slices.DeleteFunc(homes, func(h *home) bool {
			if !h.busy.tryLock() {
				return false
			}
			if h.owes(s.now()) {
				all = append(all, h.prepare(h.request(), 0))
			} else {
				h.busy.unlock()
			}
			return true
		})
		s.send(all)
		//mutant:close-outlasts-borrows
		if len(homes) == 0 || s.now() >= end {
			return
		}
	}
}

// Ping asks next, where it can be asked.
func (s *Store) Ping(ctx context.Context) ([]string, error) { return layer.Ping(ctx, s.next) }
