//go:build go1.25

package borrow

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// counted counts the requests that reach a store, each after a while.
type counted struct {
	backend.Store
	n atomic.Int64
}

func (c *counted) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	c.n.Add(1)
	time.Sleep(time.Millisecond)
	return c.Store.Do(ctx, r, d)
}

// atOnce makes calls at once that find no units, and returns how many passed and how many requests
// were sent.
func atOnce(t *testing.T, p *process, calls int) (passed, sent int64) {
	c := &counted{Store: p.next.Store}
	p.next.Store = c
	var all sync.WaitGroup
	var n atomic.Int64
	for range calls {
		all.Go(func() {
			if p.call(t).Allowed {
				n.Add(1)
			}
		})
	}
	all.Wait()
	p.next.Store = c.Store
	return n.Load(), c.n.Load()
}

// TestCallsShareABorrow: calls that come at once and find no units wait for what one of them borrows.
func TestCallsShareABorrow(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		synctest.Wait()
		h.left.Add(-h.left.Load())
		passed, sent := atOnce(t, p, 32)
		require.EqualValues(t, 32, passed)
		require.LessOrEqual(t, sent, int64(4))
	})
}

// TestCallsShareADenial: of calls that come at once and find no room one is denied by the store, and
// the others with it.
func TestCallsShareADenial(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		synctest.Wait()
		p.fill(t, h)
		for range 3 {
			passed, sent := atOnce(t, p, 32)
			require.Zero(t, passed)
			require.LessOrEqual(t, sent, int64(2))
		}
	})
}

// fill leaves no room, and no units.
func (p *process) fill(t *testing.T, h *home) {
	ask(t, p.next.Store, backend.Record, p.list, 1_000_000)
	h.left.Add(-h.left.Load())
}

// TestDenialOfAnEarlierCall: a call is not denied with one that the store has decided before it began.
func TestDenialOfAnEarlierCall(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		h := p.warm(t)
		synctest.Wait()
		p.fill(t, h)
		p.next.trip.Store(int64(4 * time.Millisecond))
		denied := make(chan bool)
		go func() { denied <- !p.call(t).Allowed }()
		time.Sleep(3 * time.Millisecond)
		ask(t, p.next.Store, backend.Reset, p.list, 0)
		go func() { denied <- !p.call(t).Allowed }()
		require.True(t, <-denied)
		require.False(t, <-denied)
	})
}

// TestWaitsWithinItsBudget: a call that waits for a Borrow without an answer is sent itself, and ends
// within its budget.
func TestWaitsWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1_000_000)))
		h := p.warm(t)
		synctest.Wait()
		h.left.Add(-h.left.Load())
		require.True(t, h.busy.tryLock()) // as a Borrow that is late
		begin := p.now()
		require.True(t, p.call(t).Allowed)
		require.Equal(t, length/waitPart, p.now()-begin)
		p.next.Store = stuck{p.next.Store}
		begin = p.now()
		_, err := layer.Ask(context.Background(), p.Store, backend.Request{
			Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1},
		})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, length, p.now()-begin)
		h.busy.unlock()
		p.next.Store = p.next.Store.(stuck).Store
		p.shared.Close()
		time.Sleep(time.Minute)
	})
}

// stuck answers when the context ends.
type stuck struct{ backend.Store }

func (s stuck) Do(ctx context.Context, _ *backend.Request, _ *backend.Decision) error {
	<-ctx.Done()
	return ctx.Err()
}
