package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestFirstBorrows: units at home answer for the first part only, and a denial that counted lent
// units leaves no part out.
func TestFirstBorrows(t *testing.T) {
	requests, m := 0, memory.New(nil)
	s := remote(m)
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op == backend.Take {
			requests += 1 + len(r.And)
		}
		return next.Do(ctx, r, d)
	}
	a, err := limiter(t, s, nil, perDayOf("a", 1_000_000, headgate.FailClosed)).WithBorrow(time.Second)
	require.NoError(t, err)
	b, err := a.With(perDayOf("b", 1_000_000, headgate.FailClosed))
	require.NoError(t, err)
	plain, err := a.WithBorrow(0)
	require.NoError(t, err)
	ctx := context.Background()
	first := func(parts ...headgate.Part) headgate.Decision {
		d, err := headgate.First(ctx, parts...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		return d
	}
	require.Eventually(t, func() bool {
		d := first(a.Part("k"), plain.Part("l"))
		return d.Source == headgate.FromLoan && d.At == 0
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { // so that both keys have local units
		d, err := b.Allow(ctx, "k")
		require.NoError(t, err)
		return d.Source == headgate.FromLoan
	}, 10*time.Second, time.Millisecond)
	spent, err := b.With(perDayOf("spent", 1, headgate.FailClosed))
	require.NoError(t, err)
	spent, err = spent.WithBorrow(0)
	require.NoError(t, err)
	first(spent.Part("k"), b.Part("k"))
	for range 10 {
		d := first(spent.Part("k"), b.Part("k"))
		require.Equal(t, 1, d.At)
		require.Equal(t, headgate.FromStore, d.Source, "the first part is left out, and b is not answered at home")
	}
	lent, err := plain.With(perDayOf("lent", 10, headgate.FailClosed))
	require.NoError(t, err)
	loan := &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 4}
	require.NoError(t, m.Do(ctx, &backend.Request{Op: backend.Borrow, Loan: loan, Group: backend.Group{Key: "k", Policies: lent.Policies()}}, new(backend.Decision)))
	require.Positive(t, loan.Lent.Units)
	for range 3 {
		before := requests
		require.Equal(t, 1, first(lent.Part("k", 10), plain.Part("m")).At)
		require.Equal(t, 2, requests-before, "both parts are sent")
	}
}
