package headgate_test

import (
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// nearOf returns what all events have of policies near their limits.
func nearOf(e *events) (found []backend.Near) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.mu.all {
		found = append(found, x.Near...)
	}
	return found
}

// TestBorrowNear: of several processes that borrow, and one that doesn't, one reports that
// the count has reached a share of the limit: by a call, or by a Borrow that tells what calls
// used at home. It is reported once more after the count has fallen.
func TestBorrowNear(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int64{"far from home": 20_000, "at home": 400_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, seen := redistest.Start(t), &events{}
			var all []*headgate.Limiter
			for i := range 4 {
				s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
				require.NoError(t, err)
				t.Cleanup(func() { _ = s.Close() })
				p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(limit)), OnFailure: headgate.FailClosed}
				opts := &headgate.Options{Observer: seen.observe, DenyCacheTTL: -1}
				if i > 0 {
					opts.Borrow = time.Second // seldom is a process late for so long
				}
				q := p
				q.Name, q.Algorithm, q.Shadow = "q", p.Algorithm.WithMax(limit/2), true
				all = append(all, limiter(t, s, opts, p, q))
			}
			// A round without an event is one in which a process was late for a term.
			for round, told := 1, 0; told < 2; round++ {
				require.LessOrEqual(t, round, 5)
				var callers sync.WaitGroup
				for i := range 8 {
					callers.Add(1)
					go func() {
						defer callers.Done()
						for n := 0; n < 20; {
							d, err := all[i%4].AllowN(t.Context(), "k", int64(10*(1+i%2)))
							if err != nil {
								t.Error(err)
								return
							}
							if !d.Allowed {
								n++
							}
						}
					}()
				}
				callers.Wait()
				for _, l := range all[1:] {
					require.Eventually(t, func() bool { return l.Stats().Borrow.Homes == 0 }, 10*time.Second, 5*time.Millisecond)
				}
				require.NoError(t, all[0].Reset(t.Context(), "k"))
				near := nearOf(seen)
				if require.LessOrEqual(t, len(near), told+1); len(near) == told {
					continue
				}
				last := near[told]
				told++
				t.Logf("%d used and %d lent of %d", last.Used-last.Lent, last.Lent, limit)
				require.Equal(t, "p", last.Policy)
				require.Equal(t, "k", last.Key)
				require.GreaterOrEqual(t, last.Used-last.Lent, limit*8/10)
			}
		})
	}
}

// TestBorrowNearAtRest: what calls used at home is reported when the key rests, by an event
// without a call. A panic of the observer is dropped.
func TestBorrowNearAtRest(t *testing.T) {
	t.Parallel()
	server, seen := redistest.Start(t), &events{}
	s, err := standalone.Open("redis://"+server.Addr(), patient)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1_000_000)), OnFailure: headgate.FailClosed}
	l := limiter(t, s, &headgate.Options{Borrow: time.Second, Observer: func(e headgate.Event) { seen.observe(e); panic("dropped") }}, p)
	for l.Stats().Borrow.Lent == 0 {
		_, err = l.Allow(t.Context(), "k")
		require.NoError(t, err)
	}
	d, err := l.AllowN(t.Context(), "k", 5) // less than what a home begins with
	require.NoError(t, err)
	require.Equal(t, headgate.FromLoan, d.Source)
	near := func() int { return len(nearOf(seen)) }
	d, err = l.Peek(t.Context(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	_, err = l.Record(t.Context(), headgate.Call{Key: "k", Costs: []int64{799_998 - (d.Used - d.Lent)}})
	require.NoError(t, err)
	require.Zero(t, near())
	require.Eventually(t, func() bool { return near() > 0 }, 10*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { return l.Stats().Borrow.Homes == 0 }, 10*time.Second, 5*time.Millisecond)
	found := seen.of(headgate.EventNear)
	require.Len(t, found, 1)
	require.Equal(t, 1, near())
	require.Equal(t, "k", found[0].Key)
	require.Equal(t, l.Policies(), found[0].Policies)
	require.Zero(t, found[0].Decision)
}
