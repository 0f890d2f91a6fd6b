package headgate_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// several returns limiters on one store that borrow for as long.
func several(t *testing.T, store *standalone.Store, n int, term time.Duration) (all []*headgate.Limiter) {
	for i := range n {
		l, err := headgate.New(store, []headgate.Policy{{
			Name: fmt.Sprint("api", i), Algorithm: algo.FixedWindow(algo.PerDay(100_000_000)), OnFailure: headgate.FailClosed,
		}}, &headgate.Options{Borrow: term})
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}

// TestCloseUnderLoad closes a store while its limiters renew their loans: when Close returns,
// nothing is lent.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	open := func(addr string) *standalone.Store {
		store, err := standalone.Open("redis://"+addr, &standalone.Options{Budget: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	const n = 20
	term := 300 * time.Millisecond // a busy machine is not late for so long
	store := open(redistest.NewRelay(t, server.Addr(), 2*time.Millisecond).Addr())
	stop, passed, atHome := make(chan struct{}), [n]atomic.Int64{}, atomic.Int64{}
	var calls sync.WaitGroup
	for i, l := range several(t, store, n, term) {
		calls.Add(1)
		go func() {
			defer calls.Done()
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				for range 20 {
					d, err := l.Allow(t.Context(), "k")
					if err == nil && d.Allowed {
						passed[i].Add(1)
					}
					if d.Source == headgate.FromLoan {
						atHome.Add(1)
					}
				}
			}
		}()
	}
	require.Eventually(t, func() bool { return atHome.Load() > 0 }, 20*time.Second, time.Millisecond)
	others := several(t, open(server.Addr()), n, term)
	require.NoError(t, store.Close())
	for _, l := range others {
		d, err := l.Peek(t.Context(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Zero(t, d.Lent)
	}
	close(stop)
	calls.Wait()
	require.Positive(t, atHome.Load())
	for i, l := range others {
		d, err := l.Peek(t.Context(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Zero(t, d.Lent)
		require.LessOrEqual(t, passed[i].Load(), d.Used)
	}
}

// TestCloseOfAStoppedServer: many limiters have units of a server that does not answer. They
// give back at once, so Close takes no longer than for one.
func TestCloseOfAStoppedServer(t *testing.T) {
	t.Parallel()
	const budget = 300 * time.Millisecond
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: budget})
	require.NoError(t, err)
	for _, l := range several(t, store, 10, time.Second) {
		for home := false; !home; {
			d, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			home = d.Source == headgate.FromLoan
		}
	}
	server.Stop()
	defer server.Cont()
	begin := time.Now()
	_ = store.Close()
	require.Less(t, time.Since(begin), 2*budget+budget/2)
}
