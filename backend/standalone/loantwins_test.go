package standalone_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestLoanTwins holds the two renderings of lending equal: random Borrows of several
// borrowers among all other operations, memory against Lua. Memory is saved and loaded now
// and then.
func TestLoanTwins(t *testing.T) {
	redistest.Plain(t)
	seed := redistest.Seed(t)
	for i := range uint64(traces) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			loanTwins(t, seed+i, redistest.Steps(3_000, 500_000)/traces)
		})
	}
}

func loanTwins(t *testing.T, seed uint64, steps int) {
	s := &loanSteps{rand: rand.New(rand.NewPCG(seed, 7)), now: trace.Start}
	now := func() time.Time { return time.UnixMicro(s.now) }
	server := redistest.Start(t)
	lua := standalone.New(clock.Client{Processor: server.Client(t), Now: now}, &standalone.Options{Budget: 10 * time.Second})
	var model backend.Store
	ctx := context.Background()
	for i := range steps {
		if i == s.ends {
			s.era()
			s.ends += []int{100, 100, 100, 1_000}[s.rand.IntN(4)] // a long one fills blocks of a CompactLog
			model = memory.New(&memory.Options{Now: now})
		}
		if i%47 == 46 {
			model = restarted(t, model.(*memory.Store), now)
		}
		r, b := s.next()
		other := r
		if r.Loan != nil {
			r.Loan.Each = make([]int64, len(r.Policies))
			loan := *r.Loan
			loan.Each = make([]int64, len(r.Policies))
			other.Loan = &loan
		}
		want, got := trace.Ask(ctx, model, r), trace.Ask(ctx, lua, other)
		if want.Err != nil || got.Err != nil {
			require.Equal(t, fmt.Sprint(want.Err), fmt.Sprint(got.Err), "step %d: %v %+v", i, r.Op, r.Loan)
			continue
		}
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v %+v", i, s.now, r.Op, r.Group, r.Loan)
		for p := range got.Each {
			if a := &r.Policies[p].Algorithm; a.Kind().Storage() == rule.StoredApart {
				require.LessOrEqual(t, got.Each[p].Used, a.MaxUsed(), "step %d at %d: %v %+v", i, s.now, r.Op, r.Group)
			}
		}
		if r.Loan != nil {
			require.Equal(t, r.Loan.Lent, other.Loan.Lent, "step %d at %d: %+v %+v", i, s.now, r.Group, r.Loan)
			if slices.ContainsFunc(r.Policies, func(p backend.Policy) bool { return p.Shadow }) {
				require.Equal(t, r.Loan.Each, other.Loan.Each, "step %d at %d: %+v %+v", i, s.now, r.Group, r.Loan)
			}
			b.lent(r.Loan, got.Err)
		}
	}
	server.NoImmortals(t)
}

// restarted returns a store of another size with what the memory store has.
func restarted(t *testing.T, s *memory.Store, now func() time.Time) *memory.Store {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Save(&b))
	fresh := memory.New(&memory.Options{Now: now, MaxKeys: 10_000 * (1 + rand.IntN(100))})
	require.NoError(t, fresh.Load(&b))
	return fresh
}

// lender sends requests of one policy to a store, on a clock of its own.
type lender struct {
	t  *testing.T
	a  *algo.Algorithm
	at *int64 // µs
	s  backend.Store
}

// onBothTwins runs a test of one policy on memory and on the script.
func onBothTwins(t *testing.T, of func(l lender), all ...algo.Algorithm) {
	t.Parallel()
	server := redistest.Start(t)
	at := new(int64)
	now := func() time.Time { return time.UnixMicro(*at) }
	lua := standalone.New(clock.Client{Processor: server.Client(t), Now: now}, &standalone.Options{Budget: 10 * time.Second})
	for i := range all {
		for _, s := range []backend.Store{memory.New(&memory.Options{Now: now}), lua} {
			*at = trace.Start
			of(lender{t, &all[i], at, s})
		}
	}
	server.NoImmortals(t)
}

func (l lender) ask(op backend.Op, cost int64, loan *backend.Loan, lease *backend.Lease) backend.State {
	list := []backend.Policy{{Name: "p", Algorithm: *l.a, OnFailure: backend.FailClosed}}
	r := backend.Request{Op: op, Loan: loan, Group: backend.Group{Lease: lease, Key: l.a.String(), Policies: list, Cost: cost}}
	r.Each = make([]backend.State, 1)
	require.NoError(l.t, l.s.Do(context.Background(), &r, new(backend.Decision)))
	return r.Each[0]
}

// TestLentUnitsOfALog gives back all that a log counts while units are lent, and fills it
// again. Then a lease ends unsettled, and its units leave one period later.
func TestLentUnitsOfALog(t *testing.T) {
	onBothTwins(t, func(l lender) {
		l.ask(backend.Reserve, 5, nil, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute})
		loan := &backend.Loan{ID: backend.LeaseID{2}, Seq: 1, Term: time.Second, Want: 40}
		l.ask(backend.Borrow, 0, loan, nil)
		require.EqualValues(t, 40, loan.Lent.Units)
		l.ask(backend.Settle, 0, nil, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Attempt: backend.LeaseID{3}})
		require.EqualValues(t, 40, l.ask(backend.Peek, 1, nil, nil).Used, "%v", l.a)
		for _, back := range []int64{2, 9} {
			l.ask(backend.Take, 3, nil, nil)
			require.EqualValues(t, 40+max(0, 3-back), l.ask(backend.Return, back, nil, nil).Used, "%v: a Return beside a loan", l.a)
		}
		require.EqualValues(t, 0, l.ask(backend.Take, 60, nil, nil).Remaining)
		end := *l.at + (loan.Lent.Ends + 2*loan.Term).Microseconds()
		for _, c := range []struct{ at, used, lent int64 }{
			{end - 1, 100, 40}, {end, 100, 0}, {trace.Start + 60_000_000, 40, 0}, {end - 1 + 59_999_999, 40, 0}, {end - 1 + 60_000_000, 0, 0},
		} {
			*l.at = c.at
			state := l.ask(backend.Peek, 1, nil, nil)
			require.Equal(t, []int64{c.used, c.lent}, []int64{state.Used, state.Lent}, "%v, %d µs after the Borrow", l.a, c.at-trace.Start)
		}
	}, algo.SlidingLog(algo.PerMinute(100)), algo.CompactLog(algo.PerMinute(100)))
}

// TestLentUnitsSaturate records as much as a log counts while units are lent. Then nobody
// settles these: the log counts no more than before.
func TestLentUnitsSaturate(t *testing.T) {
	onBothTwins(t, func(l lender) {
		lease := &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Attempt: backend.LeaseID{3}}
		l.ask(backend.Reserve, 5, nil, lease)
		loan := &backend.Loan{ID: backend.LeaseID{2}, Seq: 1, Term: time.Second, Want: algo.MaxLogLimit}
		l.ask(backend.Borrow, 0, loan, nil)
		require.NotZero(t, loan.Lent.Units)
		l.ask(backend.Record, algo.MaxLogLimit, nil, nil)
		require.EqualValues(t, l.a.MaxUsed(), l.ask(backend.Record, algo.MaxLogLimit, nil, nil).Used, "%v", l.a)
		lease.Actual = []int64{100}
		l.ask(backend.Settle, 0, nil, lease)
		require.EqualValues(t, l.a.MaxUsed(), l.ask(backend.Peek, 1, nil, nil).Used, "%v: a Settle of more", l.a)
		*l.at += (loan.Lent.Ends + 2*loan.Term).Microseconds()
		require.EqualValues(t, l.a.MaxUsed(), l.ask(backend.Peek, 1, nil, nil).Used, "%v: the lease has ended", l.a)
	}, algo.SlidingLog(algo.PerHour(algo.MaxLogLimit)), algo.CompactLog(algo.PerHour(algo.MaxLogLimit)))
}

// TestLentUnitsOfALargeCount charges what was lent of a count that is above twice what most
// kinds can count: by a settle, and at the end of a lease.
func TestLentUnitsOfALargeCount(t *testing.T) {
	onBothTwins(t, func(l lender) {
		l.ask(backend.Record, 1<<38, nil, nil)
		loan := &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 40}
		l.ask(backend.Borrow, 0, loan, nil)
		require.EqualValues(t, 40, loan.Lent.Units)
		loan.Seq, loan.Held[0] = 2, backend.Held{Seq: 1, Used: 7}
		require.EqualValues(t, 1<<38+7+40, l.ask(backend.Borrow, 0, loan, nil).Used)
		*l.at += (loan.Lent.Ends + 2*loan.Term).Microseconds()
		require.EqualValues(t, 1<<38+7+40, l.ask(backend.Peek, 1, nil, nil).Used)
	}, algo.FixedWindow(algo.PerHour(algo.MaxCount)))
}

// loanSteps draws requests on a clock that never goes back.
type loanSteps struct {
	rand  *rand.Rand
	now   int64
	eras  int
	ends  int // when the next era begins
	list  []backend.Policy
	all   [][]backend.Policy
	who   []*loanHolder
	lease []backend.Lease
}

// loanHolder is a borrower, which remembers some of what it borrowed.
type loanHolder struct {
	id     backend.LeaseID
	list   []backend.Policy
	length time.Duration
	seq    uint32
	held   [backend.MaxHeld]backend.Held
	units  int64
}

func (h *loanHolder) lent(l *backend.Loan, err error) {
	if err == nil && l.Lent.Units > 0 {
		h.held[0], h.units = backend.Held{Seq: l.Seq}, l.Lent.Units
	}
}

func (s *loanSteps) era() {
	s.eras++
	s.who, s.all, s.lease = nil, nil, nil
	s.list = nil
	for i := range 1 + s.rand.IntN(3)*s.rand.IntN(2) {
		s.list = append(s.list, backend.Policy{
			Name: fmt.Sprint("p", i), Algorithm: s.algorithm(), OnFailure: backend.FailClosed, Shadow: s.rand.IntN(4) == 0,
		})
	}
	s.all = append(s.all, s.list)
	if s.rand.IntN(2) == 0 {
		list := append([]backend.Policy(nil), s.list...)
		i := s.rand.IntN(len(list))
		a := &list[i].Algorithm
		*a = a.WithMax(min(1+s.rand.Int64N(2*a.Max()), a.Kind().MaxLimit()))
		s.all = append(s.all, list)
	}
	for i := range 1 + s.rand.IntN(4) {
		h := &loanHolder{list: s.all[s.rand.IntN(len(s.all))], length: time.Duration(10+s.rand.IntN(990)) * time.Millisecond}
		binary.LittleEndian.PutUint64(h.id[:], uint64(s.eras)<<8|uint64(i+1))
		s.who = append(s.who, h)
	}
}

func (s *loanSteps) algorithm() algo.Algorithm {
	limit := 1 + s.rand.Int64N([]int64{10, 100, 10_000}[s.rand.IntN(3)])
	l := algo.Per(limit, []time.Duration{50 * time.Millisecond, time.Second, 7 * time.Second, time.Minute}[s.rand.IntN(4)])
	large := s.rand.IntN(4) == 0
	switch s.rand.IntN(8) {
	case 0:
		if large {
			l.Events = 1 + s.rand.Int64N(algo.MaxCount)
		}
		return algo.FixedWindow(l)
	case 1:
		return algo.SlidingWindow(l)
	case 2:
		return algo.BucketedWindow(l, 2+s.rand.Int64N(10))
	case 3:
		if large {
			limit = 1 + s.rand.Int64N(algo.MaxCount)
		}
		return algo.Calendar(limit, algo.Day(), time.UTC)
	case 4, 5, 6:
		if large {
			l = algo.PerHour(1 + s.rand.Int64N(algo.MaxLogLimit))
		}
		if s.rand.IntN(2) == 0 {
			return algo.CompactLog(l)
		}
		return algo.SlidingLog(l)
	}
	return algo.TokenBucket(l, 1+s.rand.Int64N(2*limit))
}

func (s *loanSteps) next() (r backend.Request, b *loanHolder) {
	switch n := s.rand.IntN(100); {
	case n < 30:
	case n < 90:
		s.now += s.rand.Int64N(200_000)
	case n < 97:
		s.now += s.rand.Int64N(2_000_000)
	default:
		s.now += s.rand.Int64N(20_000_000)
	}
	list := s.all[s.rand.IntN(len(s.all))]
	r = backend.Request{Op: backend.Take, Group: backend.Group{Key: fmt.Sprint("k", s.eras), Policies: list, Cost: 1}}
	least := list[0].Algorithm.Max()
	for i := range list {
		least = min(least, list[i].Algorithm.Max())
	}
	r.Cost = 1 + s.rand.Int64N(1+least/4)
	switch n := s.rand.IntN(100); {
	case n < 3:
		r.Op = backend.Reset
	case n < 10:
		r.Op = backend.Peek
	case n < 15:
		r.Op = backend.Record
		// A few of these fill a log to the most that it counts.
		if list[0].Algorithm.Kind().Storage() == rule.StoredApart && s.rand.IntN(2) == 0 {
			r.Cost = least
		}
	case n < 18:
		r.Op = backend.Return
		if hasLog(list) {
			s.lease = nil
		}
	case n < 25:
		r.Run, r.UpTo, r.Cost = r.Cost, true, 1
	case n < 32:
		return s.leased(r), nil
	case n < 75:
		return s.borrow(r)
	}
	r.Cost = min(r.Cost, least)
	return r, nil
}

func (s *loanSteps) leased(r backend.Request) backend.Request {
	lease := backend.Lease{Length: time.Minute, Attempt: backend.LeaseID{1, byte(s.rand.IntN(255))}}
	if n := len(s.lease); n > 0 && s.rand.IntN(2) == 0 {
		lease = s.lease[s.rand.IntN(n)]
		lease.Attempt = backend.LeaseID{1, byte(s.rand.IntN(255))}
		r.Op = backend.Settle
		for range r.Policies {
			lease.Actual = append(lease.Actual, s.rand.Int64N(1+2*r.Cost))
		}
	} else {
		binary.LittleEndian.PutUint64(lease.ID[:], s.rand.Uint64()|1)
		r.Op = backend.Reserve
		s.lease = append(s.lease, lease)
	}
	r.Lease = &lease
	return r
}

func (s *loanSteps) borrow(r backend.Request) (backend.Request, *loanHolder) {
	h := s.who[s.rand.IntN(len(s.who))]
	r.Op, r.Policies = backend.Borrow, h.list
	least := h.list[0].Algorithm.Max()
	for i := range h.list {
		least = min(least, h.list[i].Algorithm.Max())
	}
	r.Cost = min(s.rand.Int64N(1+least/8), least)
	if s.rand.IntN(20) > 0 {
		h.seq++
	}
	loan := &backend.Loan{ID: h.id, Seq: max(h.seq, 1), Term: h.length, Held: h.held}
	binary.LittleEndian.PutUint64(loan.Epoch[:], s.rand.Uint64())
	if s.rand.IntN(4) > 0 {
		loan.Want = s.rand.Int64N(1 + least)
	}
	used := s.rand.Int64N(1 + h.units)
	loan.Held[0].Used = used
	if s.rand.IntN(2) == 0 {
		loan.Keep = s.rand.Int64N(1 + h.units - used)
	}
	switch s.rand.IntN(10) {
	case 0:
		loan.Held[0] = backend.Held{}
	case 1:
		loan.Held[1] = backend.Held{Seq: h.seq - min(h.seq, 2), Used: used}
	}
	r.Loan = loan
	return r, h
}

// TestLentUnitsOfManyBorrowers: twenty processes keep the most that one may hold. All that is
// lent counts. When each has used what it holds, the count is at its limit at most.
func TestLentUnitsOfManyBorrowers(t *testing.T) {
	onBothTwins(t, func(l lender) {
		var held [20]backend.Loan
		borrow := func(i int, want, keep, used int64) {
			h := &held[i]
			next := backend.Loan{ID: backend.LeaseID{byte(1 + i)}, Seq: h.Seq + 1, Term: time.Second, Want: want, Keep: keep}
			next.Held[0] = backend.Held{Seq: h.Seq, Used: used}
			*h = next
			l.ask(backend.Borrow, 0, h, nil)
		}
		lent := int64(0)
		for i := range 40 * len(held) {
			h := &held[i%len(held)]
			lent -= h.Lent.Units
			borrow(i%len(held), backend.MaxLoan, h.Lent.Units, 0)
			lent += h.Lent.Units
		}
		state := l.ask(backend.Peek, 1, nil, nil)
		require.Equal(t, lent, state.Lent, "%T", l.s)
		require.LessOrEqual(t, lent, rule.MaxUnits, "%T", l.s)
		l.ask(backend.Take, state.Remaining, nil, nil)
		for i := range held {
			borrow(i, 0, 0, held[i].Lent.Units)
		}
		state = l.ask(backend.Peek, 1, nil, nil)
		require.LessOrEqual(t, state.Used, state.Limit, "%T", l.s)
	}, algo.FixedWindow(algo.PerHour(algo.MaxCount)))
}

// TestRecallKeepsCharges: a denial that recalls loans leaves a reservation what it gives back.
func TestRecallKeepsCharges(t *testing.T) {
	onBothTwins(t, func(l lender) {
		lease := &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		l.ask(backend.Reserve, 5, nil, lease)
		l.ask(backend.Borrow, 0, &backend.Loan{ID: backend.LeaseID{2}, Seq: 1, Term: time.Second, Want: 20}, nil)
		require.EqualValues(t, 25, l.ask(backend.Take, 80, nil, nil).Used)
		l.ask(backend.Settle, 0, nil, lease)
		require.EqualValues(t, 20, l.ask(backend.Peek, 1, nil, nil).Used)
	}, algo.TokenBucket(algo.PerHour(10), 100), algo.FixedWindow(algo.PerHour(100)))
}
