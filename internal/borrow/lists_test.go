//go:build go1.25

package borrow

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// ask sends a request of the list to a store.
func ask(t *testing.T, s backend.Store, op backend.Op, list []backend.Policy, n int64) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), s, backend.Request{
		Op: op, Group: backend.Group{Key: "key", Policies: list, Borrow: length, Cost: n, Each: make([]backend.State, len(list))},
	})
	require.NoError(t, err)
	return d
}

func askUpTo(t *testing.T, s backend.Store, list []backend.Policy, n int64) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), s, backend.Request{
		Op: backend.Take, Group: backend.Group{Key: "key", Policies: list, Borrow: length, Cost: 1, Run: n, UpTo: true},
	})
	require.NoError(t, err)
	return d
}

// Two plans count by one name. The larger one goes above the limit of the one that lends,
// while that uses what it kept. Nothing may pass above the larger limit.
func TestListsOfOtherLimits(t *testing.T) {
	const free, paid = 2_000, 3_000
	for _, beside := range []backend.Op{backend.Take, backend.Record} {
		synctest.Test(t, func(t *testing.T) {
			on := memory.New(nil)
			p := newProcess(on, algo.FixedWindow(algo.PerDay(free)))
			p.next.trip.Store(int64(4 * time.Millisecond))
			larger := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(paid)), OnFailure: backend.FailClosed}}
			var passed, recorded int64
			var group sync.WaitGroup
			group.Go(func() {
				for range 5_000 {
					if p.call(t).Allowed {
						passed++
					}
					time.Sleep(length / 500)
				}
			})
			time.Sleep(2 * length)
			if ask(t, on, beside, larger, free/2).Allowed {
				recorded = free / 2
			}
			group.Go(func() {
				for range 2_000 {
					if ask(t, on, backend.Take, larger, 1).Allowed {
						recorded++
					}
					time.Sleep(length / 200)
				}
			})
			group.Wait()
			p.shared.Close()
			time.Sleep(2 * length)
			require.Equal(t, passed+recorded, p.used(t), "after %v: what passed is counted", beside)
			require.LessOrEqual(t, p.used(t), int64(paid), "after %v", beside)
			time.Sleep(time.Minute)
		})
	}
}

// A call of many units passes beside small ones that are decided at home, as often as if they
// were not: 13 times in 8 s if it asks each 600 ms. It may ask seldom, and of holders with
// other lengths.
func TestLargeCallsBesideLoans(t *testing.T) {
	for _, c := range []struct {
		name  string
		op    backend.Op
		home  bool // it is decided where units are at home
		holds []time.Duration
		each  time.Duration
		least int // so many of 8 s pass
	}{
		{"Take", backend.Take, false, []time.Duration{length}, length / 5, 10},
		{"Reserve", backend.Reserve, false, []time.Duration{length}, length / 5, 10},
		{"at home", backend.Take, true, []time.Duration{length}, length / 5, 10},
		{"seldom", backend.Take, false, []time.Duration{length, length, length}, 6 * length, 10},
		{"seldom at home", backend.Take, true, []time.Duration{length, length, length}, 6 * length, 10},
		{"other lengths", backend.Take, false, []time.Duration{length / 2, 5 * length}, 6 * length, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on := memory.New(nil)
				stop := make(chan bool)
				var holders []*process
				for _, length := range c.holds {
					p := newProcess(on, algo.TokenBucket(algo.PerSecond(200), 100))
					p.term = length
					holders = append(holders, p)
					go func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(time.Duration(len(c.holds)) * 20 * time.Millisecond):
								p.call(t)
							}
						}
					}()
				}
				defer time.Sleep(time.Minute)
				defer func() {
					close(stop)
					for _, p := range holders {
						p.shared.Close()
					}
				}()
				list, store := holders[0].list, backend.Store(on)
				if c.home {
					store = holders[0]
				}
				time.Sleep(20 * length)
				passed, last := 0, time.Duration(0)
				for at := time.Duration(0); at < 8*time.Second; at += c.each {
					r := backend.Request{Op: c.op, Group: backend.Group{Key: "key", Policies: list, Borrow: length, Cost: 90}}
					if c.op == backend.Reserve {
						r.Lease = &backend.Lease{ID: backend.LeaseID{1, byte(passed)}, Length: time.Minute}
					}
					d, err := layer.Ask(context.Background(), store, r)
					require.NoError(t, err)
					look := ask(t, on, backend.Peek, list, 90)
					if d.Allowed || look.Used-look.Lent+90 > look.Limit {
						last = at
					}
					if d.Allowed {
						passed++
					}
					require.Less(t, at-last, slices.Max(c.holds)+2*c.each, "a denial for units that are only lent")
					time.Sleep(c.each)
				}
				require.GreaterOrEqual(t, passed, c.least)
			})
		})
	}
}

// What is left of a loan that is recalled goes back before it ends. It would be charged whole
// otherwise.
func TestRecalledUnitsGoBack(t *testing.T) {
	for _, each := range []time.Duration{length / 50, length / 5, length / 3} {
		synctest.Test(t, func(t *testing.T) {
			on := memory.New(nil)
			p := newProcess(on, algo.FixedWindow(algo.PerDay(100_000)))
			const calls = 2_000
			for i := range calls {
				require.True(t, p.call(t).Allowed)
				if look := ask(t, on, backend.Peek, p.list, 1); i%10 == 0 && look.Lent > 0 {
					require.False(t, ask(t, on, backend.Take, p.list, look.Remaining+1).Allowed)
				}
				time.Sleep(each)
			}
			p.shared.Close()
			time.Sleep(2 * length)
			require.EqualValues(t, calls, p.used(t))
			require.Less(t, p.Stats().Borrows, int64(calls*11/10))
			time.Sleep(time.Minute)
		})
	}
}

// While a recall stands, a process asks for units once per length and no more often.
func TestRecallPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := memory.New(nil)
		p := newProcess(on, algo.FixedWindow(algo.PerDay(1_000_000)))
		calls := func(n int) {
			for range n {
				p.call(t)
				time.Sleep(length / 50)
			}
		}
		calls(200)
		require.False(t, ask(t, on, backend.Take, p.list, 1_000_000-210).Allowed)
		before := p.next.borrows.Load()
		calls(20 * 50)
		require.Less(t, p.next.borrows.Load()-before, int64(2*20+5))
		p.shared.Close()
		time.Sleep(time.Minute)
	})
}

// A loan that is used up when the key rests is settled all the same, so what was used is
// reported.
func TestUsedUpLoanIsSettled(t *testing.T) {
	for calls := 80; calls < 100; calls++ {
		synctest.Test(t, func(t *testing.T) {
			p, home := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(100))), 0
			for range calls {
				if p.call(t).Source == backend.FromLoan {
					home++
				}
				time.Sleep(length / 5)
			}
			time.Sleep(10 * length)
			require.EqualValues(t, home, p.Stats().Used, "%d calls", calls)
			p.shared.Close()
			time.Sleep(time.Minute)
		})
	}
}

// Near the limit slow processes give back what they have not used when the loan ends: no
// denial lasts longer than a length while another process holds units.
func TestScarceUnitsGoBack(t *testing.T) {
	for _, holders := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			on, stop := memory.New(nil), make(chan bool)
			var all []*process
			for i := range holders {
				p := newProcess(on, algo.FixedWindow(algo.PerDay(400)))
				all = append(all, p)
				go func() {
					for begin := time.Duration(i) * length / 7; ; begin = 0 {
						select {
						case <-stop:
							return
						case <-time.After(length/3 + begin):
							p.call(t)
						}
					}
				}()
			}
			list := all[0].list
			time.Sleep(4 * length)
			denied, longest := time.Duration(0), time.Duration(0)
			for range 600 {
				look := ask(t, on, backend.Peek, list, 1)
				d := ask(t, on, backend.Take, list, 1)
				if denied += length / 20; d.Allowed || look.Used-look.Lent >= look.Limit {
					denied = 0
				}
				longest = max(longest, denied)
				time.Sleep(length / 20)
			}
			close(stop)
			time.Sleep(length)
			for _, p := range all {
				p.shared.Close()
			}
			require.LessOrEqual(t, longest, length+length/20, "%d holders", holders)
			time.Sleep(time.Minute)
		})
	}
}

// Of calls at home those pass a shadow that it has room for, and are charged to it.
func TestShadowAtHome(t *testing.T) {
	const room = 100
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1_000_000)))
		shadow := backend.Policy{Name: "shadow", Algorithm: algo.FixedWindow(algo.PerDay(room)), Shadow: true}
		p.list = append(p.list, shadow)
		states, home, passed := make([]backend.State, 2), 0, 0
		for range 6_000 {
			r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1, Each: states}}
			d, err := layer.Ask(context.Background(), p, r)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			if d.Source == backend.FromLoan {
				home++
			}
			if states[1].RetryAfter == 0 {
				passed++
			}
			time.Sleep(length / 500)
		}
		require.Greater(t, home, 5_000)
		require.Equal(t, room, passed)
		p.shared.Close()
		time.Sleep(time.Minute)
	})
}
