//go:build go1.25

package borrow

import (
	"context"
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
		Op: op, Group: backend.Group{Key: "key", Policies: list, Cost: n, Each: make([]backend.State, len(list))},
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
			recorded = ask(t, on, beside, larger, free/2).Granted
			group.Go(func() {
				for range 2_000 {
					if ask(t, on, backend.Take, larger, 1).Allowed {
						recorded++
					}
					time.Sleep(length / 200)
				}
			})
			group.Wait()
			p.giveBack()
			time.Sleep(2 * length)
			require.Equal(t, passed+recorded, p.used(t), "after %v: what passed is counted", beside)
			require.LessOrEqual(t, p.used(t), int64(paid), "after %v", beside)
			time.Sleep(time.Minute)
		})
	}
}

// A call of many units passes beside small ones that are decided at home, as often as if
// they were not. No denial for units that are only lent lasts longer than a length.
func TestLargeCallsBesideLoans(t *testing.T) {
	for _, kind := range []string{"Take", "Reserve", "at home"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				on := memory.New(nil)
				p := newProcess(on, algo.TokenBucket(algo.PerSecond(200), 100))
				plain := []backend.Policy{p.list[0]}
				plain[0].Borrow = 0
				stop := make(chan bool)
				defer time.Sleep(time.Minute)
				defer p.giveBack()
				defer close(stop)
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(length / 5):
							p.call(t)
						}
					}
				}()
				time.Sleep(5 * length)
				passed, wrong, longest := 0, time.Duration(0), time.Duration(0)
				for range 400 {
					d := backend.Decision{}
					switch kind {
					case "Take":
						d = ask(t, on, backend.Take, plain, 90)
					case "at home":
						d = ask(t, p, backend.Take, p.list, 90)
					default:
						lease := &backend.Lease{ID: backend.LeaseID{1, byte(passed)}, Length: time.Minute}
						r := backend.Request{Op: backend.Reserve, Lease: lease, Group: backend.Group{Key: "key", Policies: plain, Cost: 90}}
						require.NoError(t, on.Do(context.Background(), &r, &d))
					}
					switch look := ask(t, on, backend.Peek, plain, 90); {
					case d.Allowed:
						passed, wrong = passed+1, 0
					case look.Used-look.Lent+90 > look.Limit:
						wrong = 0
					default:
						wrong += length / 5
					}
					longest = max(longest, wrong)
					time.Sleep(length / 5)
				}
				require.GreaterOrEqual(t, passed, 10, "14 pass in 8 s where nothing is lent")
				require.LessOrEqual(t, longest, length+length/5, "a wrong denial")
			})
		})
	}
}

// Of calls at home those pass a shadow that it has room for, and are charged to it.
func TestShadowAtHome(t *testing.T) {
	const room = 100
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1_000_000)))
		shadow := backend.Policy{Name: "shadow", Algorithm: algo.FixedWindow(algo.PerDay(room)), Shadow: true, Borrow: length}
		p.list = append(p.list, shadow)
		states, home, passed := make([]backend.State, 2), 0, 0
		for range 6_000 {
			r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Cost: 1, Each: states}}
			d, err := layer.Ask(context.Background(), p, r)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			if d.Source == backend.FromLease {
				home++
			}
			if states[1].RetryAfter == 0 {
				passed++
			}
			time.Sleep(length / 500)
		}
		require.Greater(t, home, 5_000)
		require.Equal(t, room, passed)
		p.giveBack()
		time.Sleep(time.Minute)
	})
}
