//go:build go1.25

package shard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestAtMostWithinBudget: an AtMost asks no other sub-key if that would answer too late.
func TestAtMostWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for trip, requests := range map[time.Duration]int64{60 * time.Millisecond: 1, 40 * time.Millisecond: 2} {
			m := memory.New(nil)
			m.Shared().Budget = 100 * time.Millisecond
			a := asked{takes{m, trip}, &atomic.Int64{}, &atomic.Int64{}}
			s := shard.New(plain{a}, m)
			began := time.Now()
			d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.AtMost, Group: backend.Group{
				Key: "k", Policies: one(algo.FixedWindow(algo.PerDay(160)), 16), Cost: 160}})
			require.NoError(t, err)
			require.Equal(t, 10*requests, d.Granted)
			require.Equal(t, requests, a.n.Load())
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
		}
	})
}

// takes is a store of which every request takes a time.
type takes struct {
	backend.Store
	trip time.Duration
}

func (s takes) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	time.Sleep(s.trip)
	return s.Store.Do(ctx, r, d)
}

// TestRecordBeyondBudget: the call's own budget ends a Record that no sub-key has answered.
// Its caller has no deadline, and receives ErrUnavailable. A caller whose deadline ends the
// call receives that.
func TestRecordBeyondBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := unsent{memory.New(nil)}
		next.Shared().Budget = 100 * time.Millisecond
		s := shard.New(plain{next}, next)
		record := take("k", one(algo.FixedWindow(algo.PerDay(40)), 4), 1)
		record.Op = backend.Record
		_, err := layer.Ask(t.Context(), s, record)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = layer.Ask(short, s, record)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, backend.ErrUnavailable)
	})
}

// unsent is a store on which each request waits, unsent, until its context ends.
type unsent struct{ *memory.Store }

func (s unsent) Do(ctx context.Context, _ *backend.Request, _ *backend.Decision) error {
	<-ctx.Done()
	return fmt.Errorf("not sent: %w", ctx.Err())
}
