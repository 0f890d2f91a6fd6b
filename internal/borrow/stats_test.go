//go:build go1.25

package borrow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestAnsweredNeverFalls: metrics report the answered Borrows as a counter, which may not
// fall while others are lost.
func TestAnsweredNeverFalls(t *testing.T) {
	p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1000)))
	defer p.shared.Close()
	h := &home{term: length, store: p.Store}
	h.busy.tryLock() // or the timer would tend it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200_000 {
			(&pending{home: h}).answered(&backend.Decision{}, backend.ErrPerhapsCounted)
		}
	}()
	for most := int64(0); ; {
		s := p.Stats()
		require.GreaterOrEqual(t, s.Borrows-s.Lost, most)
		most = s.Borrows - s.Lost
		select {
		case <-done:
			require.EqualValues(t, 200_000, p.Stats().Lost)
			return
		default:
		}
	}
}

// TestDeniedByLoans: Denied counts calls of one key, by any verb, that would pass if no unit were lent.
func TestDeniedByLoans(t *testing.T) {
	const limit = 1000
	for name, c := range map[string]struct {
		make  func(r *backend.Request, beside, most int64) // units beside those that are lent, and with them
		count int64
	}{
		"take": {func(r *backend.Request, beside, _ int64) { r.Cost = beside + 1 }, 1},
		"reserve": {func(r *backend.Request, beside, _ int64) {
			r.Op, r.Cost, r.Lease = backend.Reserve, beside+1, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		}, 1},
		"costs per policy": {func(r *backend.Request, beside, _ int64) {
			large := backend.Policy{Name: "large", Algorithm: algo.FixedWindow(algo.PerDay(100 * limit)), OnFailure: backend.FailClosed}
			r.Policies, r.Costs = []backend.Policy{large, r.Policies[0]}, []int64{10 * limit, beside + 1}
		}, 1},
		"spent": {func(r *backend.Request, _, most int64) { r.Cost = most + 1 }, 0},
		"peek":  {func(r *backend.Request, beside, _ int64) { r.Op, r.Cost = backend.Peek, beside+1 }, 0},
		"keys": {func(r *backend.Request, beside, _ int64) {
			r.Cost, r.And = beside+1, []backend.Group{{Key: "other", Policies: r.Policies, Cost: 1}}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(limit)))
				p.warm(t)
				d := ask(t, p.next.Store, backend.Peek, p.list, 1)
				require.Positive(t, d.Lent)
				r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "key", Policies: p.list, Borrow: p.term}}
				c.make(&r, d.Remaining, d.Remaining+d.Lent)
				d, err := layer.Ask(t.Context(), p.Store, r)
				require.NoError(t, err)
				require.False(t, d.Allowed)
				require.Equal(t, c.count, p.Stats().Denied)
				p.shared.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}
