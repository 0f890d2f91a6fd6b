//go:build go1.25

package borrow

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

const length = 100 * time.Millisecond

// distant is a store whose Borrows take a time on their way and as long on the way back.
type distant struct {
	backend.Store
	trip    duration
	takes   duration                               // how long a take takes
	during  atomic.Pointer[func(*backend.Request)] // called while a Borrow is under way; may be nil
	loses   atomic.Int64                           // so many replies to Borrows are lost
	borrows atomic.Int64
	shared  *layer.Shared
}

// duration is one that a test changes while a Store uses it.
type duration struct{ atomic.Int64 }

func (d *duration) sleep(part time.Duration) { time.Sleep(time.Duration(d.Load()) / part) }

func (s *distant) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	at := s.shared.Sending(r)
	defer func() { s.shared.Sent(r, d, at, err) }()
	if r.Op != backend.Borrow {
		s.takes.sleep(1)
		return s.Store.Do(ctx, r, d)
	}
	s.borrows.Add(1)
	s.trip.sleep(2)
	if during := s.during.Load(); during != nil {
		(*during)(r)
	}
	err = s.Store.Do(ctx, r, d)
	s.trip.sleep(2)
	if s.loses.Add(-1) >= 0 {
		*d, err = backend.Decision{}, backend.ErrPerhapsCounted
	}
	return err
}

// process is a borrowing process on a store.
type process struct {
	*Store
	next  *distant
	list  []backend.Policy
	term  time.Duration
	clock atomic.Pointer[func()] // called when the clock is read; may be nil
}

func newProcess(on *memory.Store, a algo.Algorithm) *process {
	p := &process{next: &distant{Store: on}}
	p.next.trip.Store(int64(time.Millisecond))
	p.next.shared = &layer.Shared{Budget: length}
	p.Store = New(p.next, p.next.shared, nil)
	now := p.now
	p.now = func() time.Duration {
		if f := p.clock.Load(); f != nil {
			(*f)()
		}
		return now()
	}
	p.list, p.term = []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}, length
	return p
}

func (p *process) call(t *testing.T) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), p.Store, backend.Request{
		Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1},
	})
	require.NoError(t, err)
	return d
}

// used returns what the store counts.
func (p *process) used(t *testing.T) int64 {
	t.Helper()
	d, err := layer.Ask(context.Background(), p.next.Store, backend.Request{
		Op: backend.Peek, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term},
	})
	require.NoError(t, err)
	return d.Used
}

// home returns the key's home, which has units, after calls for a while.
func (p *process) warm(t *testing.T) *home {
	t.Helper()
	for range 60 {
		p.call(t)
		time.Sleep(2 * time.Millisecond)
	}
	h := p.homes.all()[0]
	require.Positive(t, h.left.Load())
	require.Equal(t, backend.FromLoan, p.call(t).Source)
	return h
}

// bubble runs a test under virtual time.
func bubble(t *testing.T, test func(t *testing.T, p *process)) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1_000_000)))
		test(t, p)
		p.shared.Close()
		time.Sleep(time.Minute)
	})
}

func TestRestIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.warm(t)
		time.Sleep(2 * length)
		require.LessOrEqual(t, p.used(t), int64(61+10), "fewer are kept as fewer are used")
		time.Sleep(5 * length)
		require.Equal(t, int64(61), p.used(t), "what was not used is free again")
		require.Zero(t, p.Stats().Homes)
	})
}

func TestFewBorrowsForManyCalls(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		const calls = 10_000
		trips := 0
		for range calls {
			if p.call(t).Source != backend.FromLoan {
				trips++
			}
			time.Sleep(length / 200)
		}
		require.Less(t, trips, calls*2/1000, "calls that went to the store")
		require.Less(t, p.next.borrows.Load(), int64(calls*20/1000), "round trips")
	})
}

// The last loans of a window end with it: no Borrow follows another at once, and units are
// borrowed again when the next window begins.
func TestClosingWindow(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.FixedWindow(algo.PerSecond(1_000_000)), algo.SlidingWindow(algo.PerSecond(1_000_000))} {
		synctest.Test(t, func(t *testing.T) {
			const lengths, calls = 100, 50
			p, trips := newProcess(memory.New(nil), a), 0
			for range lengths * calls {
				if p.call(t).Source != backend.FromLoan {
					trips++
				}
				time.Sleep(length / calls)
			}
			require.Less(t, p.next.borrows.Load(), int64(lengths*12/5), "201 where no window ends")
			require.Less(t, trips, lengths*calls/100)
			p.shared.Close()
			time.Sleep(time.Minute)
		})
	}
}

// What was used before a window closes is reported in it. A loan that ended unsettled would
// be charged whole, and a SlidingWindow carries that into the next window.
func TestReportedBeforeTheWindowCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 50
		p := newProcess(memory.New(nil), algo.SlidingWindow(algo.PerSecond(1_000_000)))
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		for range 5 {
			begin := time.Now()
			for range calls {
				p.call(t)
				time.Sleep(time.Second/calls - time.Millisecond) // the link takes the rest, if it is used
			}
			time.Sleep(time.Until(begin.Add(time.Second)))
			require.LessOrEqual(t, p.used(t), int64(calls))
		}
		require.Positive(t, p.next.borrows.Load())
		p.giveBack()
		time.Sleep(time.Minute)
	})
}

func TestSeldomCallsBorrowNothing(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		for range 20 {
			p.call(t)
			require.Empty(t, p.homes.all())
			time.Sleep(3 * length)
		}
		require.Zero(t, p.next.borrows.Load())
	})
}

// A loan ends so long after the request as the store says, and not so long after the
// reply.
func TestLateReplyLendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.next.trip.Store(int64(4 * length))
		for range sure {
			p.call(t)
		}
		require.Positive(t, p.next.borrows.Load())
		for range 20 {
			require.NotEqual(t, backend.FromLoan, p.call(t).Source)
			time.Sleep(length / 4)
		}
	})
}

// Over a link of which ten round trips take longer than a loan nothing is borrowed, once
// that is known. Slow round trips among fast ones are no long link.
func TestFarLinkLendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.next.trip.Store(int64(length / 9))
		p.next.takes.Store(int64(length / 9))
		calls := func() (borrows int) {
			before := p.next.borrows.Load()
			for range 100 {
				p.call(t)
				time.Sleep(length / 50)
			}
			return int(p.next.borrows.Load() - before)
		}
		require.LessOrEqual(t, calls(), 2, "one that lends, and one that gives back")
		require.Zero(t, calls())
		p.next.takes.Store(int64(length / 11))
		p.call(t)
		p.next.takes.Store(int64(length / 2))
		require.Positive(t, calls())
		p.next.trip.Store(int64(length / 9))
		p.next.takes.Store(int64(length / 9))
		time.Sleep(2 * linkWindow)
		require.LessOrEqual(t, calls(), 2, "a fast round trip of long ago")
		require.Zero(t, calls())
	})
}

// The clock is read after the unit was taken.
func TestClockAfterUnit(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		before, left := h.left.Load(), int64(0)
		clock := func() { left = h.left.Load() }
		p.clock.Store(&clock)
		_, ok := h.take(1)
		require.True(t, ok)
		p.clock.Store(nil)
		require.Equal(t, before-1, left)
	})
}

// A unit that was taken before the used units are read, by a call that reads the clock
// after that, is reported as used: it must not be used later.
func TestUnitOfAnotherTurn(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		h.busy.tryLock() // as of one that borrows
		clock := func() {
			p.clock.Store(nil)
			h.loan(p.now(), 10)
		}
		p.clock.Store(&clock)
		_, ok := h.take(1)
		require.False(t, ok)
	})
}

// Calls of a process that is late take no unit of a loan that it may not use any more: the
// settle reports none of them as used.
func TestLateUnitsArePutBack(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		require.True(t, h.busy.tryLock()) // as of a Borrow that is late too
		time.Sleep(length)
		before := h.left.Load()
		require.Positive(t, before)
		for range 10 {
			_, ok := h.take(1)
			require.False(t, ok)
		}
		require.Equal(t, before, h.left.Load())
		h.busy.unlock()
	})
}

// What was used is reported at half of the term, so that a process that is late by two terms
// more still reports it before the store charges the loan whole.
func TestReportedAtHalf(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.warm(t)
		var last time.Time
		var longest time.Duration
		during := func(*backend.Request) {
			if !last.IsZero() {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
		}
		p.next.during.Store(&during)
		for range 10 * 50 {
			p.call(t)
			time.Sleep(length / 50)
		}
		require.NotZero(t, longest)
		require.LessOrEqual(t, longest, length/2+length/grid)
		p.next.during.Store(nil)
	})
}

// What is given back is in use no more when its used units are read.
func TestLoanInUseIsNotSettled(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		var took atomic.Int64
		during := func(r *backend.Request) {
			if r.Loan.Want > 0 {
				return
			}
			if _, ok := h.take(1); ok {
				took.Add(1)
			}
		}
		p.next.during.Store(&during)
		time.Sleep(3 * length)
		require.Zero(t, took.Load())
	})
}

// A Borrow names every loan that the store may hold, so none is sent when there are too
// many in doubt.
func TestEveryLoanIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		own := func(look func()) { // while nothing else has the home
			for !h.busy.tryLock() {
				time.Sleep(time.Millisecond)
			}
			look()
			h.busy.unlock()
		}
		own(func() {
			h.own.held, h.own.until = make([]lending, backend.MaxHeld), p.now()+length
			require.False(t, h.names(p.now()))
			require.False(t, h.can(p.now(), 100))
		})
		time.Sleep(3 * length)
		own(func() { require.True(t, h.names(p.now()), "they have ended") })
	})
}

// A loan whose reply was lost is settled by the next Borrow: nothing of it was used.
func TestLostBorrowIsSettled(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		calls := int64(0)
		call := func() {
			calls++
			_, _ = layer.Ask(context.Background(), p.Store, backend.Request{
				Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1},
			})
		}
		p.next.loses.Store(1)
		for range sure + 2 {
			call()
		}
		require.EqualValues(t, 1, p.Stats().Lost)
		lent := p.used(t) - calls
		require.Greater(t, lent, int64(1), "the lost Borrow has lent units")
		time.Sleep(length * 9 / 10)
		require.Equal(t, calls, p.used(t), "each call counts once, and nothing else does")
		for range 20 {
			call()
			time.Sleep(length / 20)
		}
		p.next.loses.Store(1) // one that renews or gives back
		time.Sleep(10 * length)
		require.EqualValues(t, 2, p.Stats().Lost)
		require.Equal(t, calls, p.used(t))
	})
}

// Homes are due at instants of a grid, so that one batch serves many.
func TestHomesAreDueTogether(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		for range 10 {
			time.Sleep(time.Millisecond / 3)
			h.wake(length / 3)
			require.Zero(t, h.due%(length/grid))
		}
	})
}

// A home that was lent nothing borrows again when a call shows that there is room, as at the
// begin of a window.
func TestRoomEndsAPause(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		at := p.now()
		h.pause(at+length, 500)
		h.asked(at, &backend.Decision{State: backend.State{Remaining: 499}})
		require.EqualValues(t, at+length, h.try.Load())
		h.asked(at, &backend.Decision{State: backend.State{Remaining: 500}})
		require.EqualValues(t, at, h.try.Load())
		h.pause(at+length, never)
		h.asked(at, &backend.Decision{State: backend.State{Remaining: 1 << 36}})
		require.EqualValues(t, at+length, h.try.Load())
	})
}

// A denial of a moment ago may have met the units that this process holds now.
func TestLoanEndsDenials(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		at := denial.Of(p.shared).At("key")
		generation := at.Generation()
		p.warm(t)
		require.Greater(t, at.Generation(), generation)
	})
}

func TestReset(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.warm(t)
		_, err := layer.Ask(context.Background(), p.Store, backend.Request{Op: backend.Reset, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term}})
		require.NoError(t, err)
		require.NotEqual(t, backend.FromLoan, p.call(t).Source)
	})
}

// TestRunAtHome: a run is decided at home if all that it asks for is there.
func TestRunAtHome(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		left := h.left.Load()
		d := askUpTo(t, p.Store, p.list, left)
		require.Equal(t, backend.FromLoan, d.Source)
		require.Equal(t, backend.Estimated, d.Known)
		require.Equal(t, left, d.Passed)
		require.Zero(t, h.left.Load())
		d = askUpTo(t, p.Store, p.list, 1)
		require.Equal(t, backend.FromStore, d.Source)
		require.EqualValues(t, 1, d.Passed)
	})
}

func TestCostsThatDiffer(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Costs: []int64{1}}}
		d, err := layer.Ask(context.Background(), p.Store, r)
		require.NoError(t, err)
		require.Equal(t, backend.FromLoan, d.Source)
		two := append(p.list[:1:1], backend.Policy{Name: "q", Algorithm: p.list[0].Algorithm, OnFailure: backend.FailClosed})
		r = backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: two, Borrow: length, Costs: []int64{1, 2}}}
		_, ok := costOf(&r.Group)
		require.False(t, ok)
		require.NotNil(t, h)
	})
}

// Several processes share a limit that is smaller than what they ask for: as many calls
// pass as the limit says, in each window.
func TestProcessesShareALimit(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.FixedWindow(algo.PerSecond(1000)), algo.TokenBucket(algo.PerSecond(1000), 500)} {
		t.Run(a.Kind().String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New(nil)
				passed, seconds, begin := make(chan int, 8), 4, time.Now()
				var all []*process
				for i := range 8 {
					p := newProcess(store, a)
					all = append(all, p)
					go func() {
						n := 0
						for range seconds * 400 {
							if p.call(t).Allowed {
								n++
							}
							time.Sleep(time.Second/400 + time.Duration(i)*time.Microsecond)
						}
						passed <- n
					}()
				}
				n := 0
				for range all {
					n += <-passed
				}
				most := a.Worst(time.Since(begin))
				for _, p := range all {
					p.shared.Close()
				}
				time.Sleep(time.Minute)
				require.LessOrEqual(t, int64(n), most)
				require.Greater(t, n, 1000*seconds*98/100, fmt.Sprint("of ", most))
			})
		})
	}
}
