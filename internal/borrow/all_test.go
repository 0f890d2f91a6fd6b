//go:build go1.25

package borrow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// both takes from homes of two processes at once.
func both(ctx context.Context, p, q *process) (d backend.Decision, atHome bool) {
	r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1, Via: p.Store}}
	r.And = []backend.Group{{Key: "key", Policies: q.list, Borrow: q.term, Cost: 1, Via: q.Store}}
	return d, p.all(ctx, r, &d)
}

// twice runs a test with two processes whose homes have units.
func twice(t *testing.T, test func(p, q *process, h, k *home)) {
	bubble(t, func(t *testing.T, p *process) {
		q := newProcess(p.next.Store.(*memory.Store), p.list[0].Algorithm.WithMax(1<<20))
		q.list[0].Name = "q"
		for range 60 {
			p.call(t)
			q.call(t)
			time.Sleep(2 * time.Millisecond)
		}
		h, k := p.homes.all()[0], q.homes.all()[0]
		require.Positive(t, h.left.Load())
		require.Positive(t, k.left.Load())
		test(p, q, h, k)
		q.shared.Close()
	})
}

func TestAllAtHome(t *testing.T) {
	twice(t, func(p, q *process, h, k *home) {
		borrows, before, other := p.next.borrows.Load(), h.left.Load(), k.left.Load()
		d, atHome := both(context.Background(), p, q)
		require.True(t, atHome)
		require.Equal(t, borrows, p.next.borrows.Load())
		require.Equal(t, before-1, h.left.Load())
		require.Equal(t, other-1, k.left.Load())
		require.True(t, d.Allowed)
		require.Equal(t, backend.FromLoan, d.Source)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, atHome = both(ended, p, q)
		require.False(t, atHome)
	})
}

// What was taken of a key is put back if another key has no units, unless a Borrow may
// have counted it.
func TestAllAtHomeOrNone(t *testing.T) {
	twice(t, func(p, q *process, h, k *home) {
		before, other, end := h.left.Load(), int64(0), k.end.Swap(0)
		var taken atomic.Bool
		look := func() {
			if h.left.Load() < before {
				taken.Store(true)
			}
		}
		q.clock.Store(&look)
		_, atHome := both(context.Background(), p, q)
		require.False(t, atHome)
		require.False(t, taken.Load(), "a key that has no units is found before any are taken")
		synctest.Wait()

		ends := func() { // the loan ends when its units have been taken
			if k.left.Load() < other {
				k.end.Store(0)
			}
		}
		all := func() bool {
			synctest.Wait() // a Borrow in the background reads the clock too
			k.end.Store(end)
			other = k.left.Load()
			q.clock.Store(&ends)
			defer synctest.Wait()
			defer q.clock.Store(nil)
			_, atHome := both(context.Background(), p, q)
			return atHome
		}
		require.False(t, all())
		require.Equal(t, before, h.left.Load())

		ended := ends
		ends = func() {
			if k.left.Load() < other && k.end.Load() > 0 {
				h.left.read() // as of a Borrow that has come and gone
			}
			ended()
		}
		require.False(t, all())
		require.Equal(t, before-1, h.left.Load())
	})
}
