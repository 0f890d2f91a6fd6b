//go:build go1.25

package borrow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// two are parts of a call of two keys, on homes of two processes.
func two(p, q *process) []Part {
	part := func(p *process) Part {
		r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Cost: 1}}
		return Part{Store: p.Store, Request: r, Decision: new(backend.Decision)}
	}
	return []Part{part(p), part(q)}
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
		parts := two(p, q)
		require.True(t, All(context.Background(), parts))
		require.Equal(t, borrows, p.next.borrows.Load())
		require.Equal(t, before-1, h.left.Load())
		require.Equal(t, other-1, k.left.Load())
		for i := range parts {
			require.True(t, parts[i].Decision.Allowed)
			require.Equal(t, backend.FromLease, parts[i].Decision.Source)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		require.False(t, All(ended, two(p, q)))
	})
}

// What was taken of a key is put back if another key has no units, unless a Borrow may
// have counted it.
func TestAllAtHomeOrNone(t *testing.T) {
	twice(t, func(p, q *process, h, k *home) {
		before, other, end := h.left.Load(), int64(0), k.end.Swap(0)
		require.False(t, All(context.Background(), two(p, q)))
		require.Equal(t, before, h.left.Load(), "a key that has no units is found before any are taken")

		ends := func() { // the lease ends when its units have been taken
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
			return All(context.Background(), two(p, q))
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
