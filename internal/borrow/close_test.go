//go:build go1.25

package borrow

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// Close waits for a Borrow under way, and gives its units back. Calls meanwhile are
// decided by the store.
func TestCloseAwaitsBorrows(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h, calls := p.warm(t), int64(61)
		for !h.busy.tryLock() {
			time.Sleep(time.Millisecond)
		}
		p.next.trip.Store(int64(length / 2))
		go h.renew()
		time.Sleep(length / 10)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			p.shared.Close()
		}()
		time.Sleep(length / 10)
		require.True(t, h.busy.locked(), "the test is of a Borrow under way")
		require.Positive(t, h.left.Load())
		require.Equal(t, backend.FromStore, p.call(t).Source)
		calls++
		<-closed
		require.Equal(t, calls, p.used(t))
		require.Equal(t, p.Stats().Lent-p.Stats().GivenBack, p.Stats().Used)
	})
}

// A Borrow that does not end delays Close by one budget.
func TestCloseAwaitsNoLostBorrow(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		for !h.busy.tryLock() {
			time.Sleep(time.Millisecond)
		}
		begin := p.now()
		p.shared.Close()
		require.LessOrEqual(t, p.now()-begin, p.shared.Budget+2*time.Millisecond)
	})
}

// A call that was on its way to a Borrow when the store began to close sends none.
func TestClosingBorrowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		closes := func() {
			if p.homes.count.Load() > 0 { // the call has found the store open, and made a home
				p.clock.Store(nil)
				p.shared.Close()
			}
		}
		p.clock.Store(&closes)
		for range sure {
			require.Equal(t, backend.FromStore, p.call(t).Source)
		}
		require.True(t, p.shared.Closed.Load())
		require.Zero(t, p.next.borrows.Load())
	})
}

// A home whose loans could not be given back sends nothing after Close.
func TestCloseEndsTheTimer(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.warm(t)
		p.next.loses.Store(100)
		p.shared.Close()
		borrows := p.next.borrows.Load()
		time.Sleep(10 * length)
		require.Equal(t, borrows, p.next.borrows.Load())
	})
}

// TestCloseSettlesLostLoans: local units of which the last reply was lost, and that are none,
// may owe a loan.
func TestCloseSettlesLostLoans(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		p.next.loses.Store(1)
		for range sure + 1 {
			_, _ = layer.Ask(context.Background(), p.Store, backend.Request{
				Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1},
			})
		}
		require.EqualValues(t, 1, p.Stats().Lost)
		require.Greater(t, p.used(t), int64(sure+1), "the lost Borrow has lent units")
		p.shared.Close()
		require.EqualValues(t, sure+1, p.used(t))
	})
}

// What other keys hold is given back before the Borrow under way is waited for, and not when
// their loans have ended meanwhile.
func TestCloseBesideAStuckBorrow(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		const calls = 60
		p.shared.Budget = 5 * length
		for range calls {
			for _, key := range []string{"key", "stuck"} {
				_, err := layer.Ask(t.Context(), p.Store, backend.Request{
					Op: backend.Take, Group: backend.Group{Key: key, Policies: p.list, Borrow: p.term, Cost: 1},
				})
				require.NoError(t, err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		for _, h := range p.homes.all() {
			for h.of.Key == "stuck" && !h.busy.tryLock() {
				time.Sleep(time.Millisecond)
			}
		}
		p.shared.Close()
		time.Sleep(10 * length)
		require.EqualValues(t, calls, p.used(t))
	})
}
