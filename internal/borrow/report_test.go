//go:build go1.25

package borrow

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestReportsAreExact: what Borrows report as charged is what the store has charged beside the
// calls that it was asked for: also of a loan that ended unsettled, and of lost replies.
func TestReportsAreExact(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		var reported, borrows atomic.Int64
		p.report = func(charged int64, r *backend.Request, d *backend.Decision) {
			require.Equal(t, backend.Borrow, r.Op)
			require.True(t, d.Allowed)
			require.Len(t, r.Each, 1)
			reported.Add(charged)
			borrows.Add(1)
		}
		asked := int64(0)
		call := func() {
			if d, err := layer.Ask(context.Background(), p.Store, backend.Request{
				Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term, Cost: 1},
			}); err != nil || d.Source == backend.FromStore {
				asked++
			}
		}
		exact := func() {
			t.Helper()
			time.Sleep(length / 5) // what is under way ends
			d, err := layer.Ask(context.Background(), p.next.Store, backend.Request{
				Op: backend.Peek, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term},
			})
			require.NoError(t, err)
			require.Equal(t, d.Used-d.Lent, asked+reported.Load())
		}
		busy := func(lengths time.Duration) {
			for range 50 * lengths {
				call()
				time.Sleep(length / 50)
			}
		}
		busy(5)
		require.Greater(t, borrows.Load(), int64(2))
		for _, late := range []time.Duration{length * 3 / 2, 7 * length / 2} { // its loan is named, or is not
			busy(1)
			h := p.homes.all()[0]
			for !h.busy.tryLock() {
				time.Sleep(time.Millisecond)
			}
			for range 20 {
				call()
			}
			h.pause(p.now()+late, never) // as of a process that was stopped
			before := reported.Load()
			time.Sleep(late)
			h.busy.unlock()
			call()
			exact()
			require.Greater(t, reported.Load(), before)
		}
		p.next.loses.Store(2)
		busy(2)
		time.Sleep(10 * length)
		exact()
		require.EqualValues(t, 2, p.Stats().Lost)
		require.Empty(t, p.homes.all())
	})
}

// What was used of a loan that ended before its key's last Borrow is reported all the same.
func TestEndedLoanIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		reported, asked := int64(0), int64(0)
		p.report = func(charged int64, _ *backend.Request, _ *backend.Decision) { reported += charged }
		for range 100 {
			if p.call(t).Source == backend.FromStore {
				asked++
			}
			time.Sleep(length / 50)
		}
		h := p.homes.all()[0]
		for !h.busy.tryLock() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(h.end.Load()) - p.now() + length/10) // as of a busy process
		h.busy.unlock()
		time.Sleep(10 * length)
		require.Zero(t, p.Stats().Homes)
		require.Equal(t, p.used(t), asked+reported)
	})
}
