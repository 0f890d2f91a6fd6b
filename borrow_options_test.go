package headgate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestBorrowSharesHomes: a limiter that With or OnFailure makes at the call is answered from
// the units of the others, since its list decides the same.
func TestBorrowSharesHomes(t *testing.T) {
	t.Parallel()
	day, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, a := range map[string]func() algo.Algorithm{
		"window": func() algo.Algorithm { return algo.FixedWindow(algo.PerDay(1_000_000)) },
		"calendar": func() algo.Algorithm {
			zone, err := time.LoadLocation("Europe/Berlin") // another pointer each time
			require.NoError(t, err)
			require.NotSame(t, day, zone)
			return algo.Calendar(1_000_000, algo.Day(), zone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls = 3000
			store, err := standalone.Open("redis://"+redistest.Start(t).Addr(), &standalone.Options{Budget: 10 * time.Second})
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			l, home := limiter(t, store, &headgate.Options{Borrow: time.Second}, headgate.Policy{Name: "p", Algorithm: a(), OnFailure: headgate.FailClosed}), 0
			for i := range calls {
				own, err := l.OnFailure([]headgate.FailureMode{headgate.FailOpen, headgate.FailClosed}[i%2])
				require.NoError(t, err)
				if i%3 == 0 {
					list := l.Policies()
					list[0].Algorithm = a()
					own, err = l.With(list...)
					require.NoError(t, err)
				}
				d, err := own.Allow(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, d.Allowed)
				if d.Source == headgate.FromLoan {
					home++
				}
			}
			s := l.Stats().Borrow
			t.Logf("%d of %d calls at home, %d Borrows of %d homes", home, calls, s.Borrows, s.Homes)
			require.Equal(t, 1, s.Homes)
			require.Less(t, s.Borrows, int64(calls/20))
			require.Greater(t, home, calls*8/10)
			d, err := l.Peek(t.Context(), headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.LessOrEqual(t, d.Used-d.Lent, int64(calls))
			require.GreaterOrEqual(t, d.Used, int64(calls))
		})
	}
}

// TestBorrowOfAnotherMode: a call that a Borrow carries has its own failure mode, and not
// that of the limiter whose call has made the home.
func TestBorrowOfAnotherMode(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	s := remote(&fake{Store: memory.New(nil), do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if down.Load() {
			return backend.ErrUnavailable
		}
		return next.Do(ctx, r, d)
	}})
	l, err := headgate.New(s, []headgate.Policy{{
		Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100_000)), OnFailure: headgate.FailClosed,
	}}, &headgate.Options{Borrow: time.Second})
	require.NoError(t, err)
	for l.Stats().Borrow.Lent == 0 {
		_, err = l.Allow(t.Context(), "k")
		require.NoError(t, err)
	}
	before := l.Stats().Borrow.Borrows
	down.Store(true)
	open, err := l.OnFailure(headgate.FailOpen)
	require.NoError(t, err)
	d, err := open.AllowN(t.Context(), "k", 5000) // more than the home has
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	require.Greater(t, l.Stats().Borrow.Borrows, before, "it was a Borrow")
	require.Equal(t, 1, l.Stats().Borrow.Homes)
}
