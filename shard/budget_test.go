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

// TestBeyondBudget: where a call's own budget ends it before a sub-key has answered, its
// caller, who has no deadline, receives ErrUnavailable. A caller whose deadline ends the call
// receives that.
func TestBeyondBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for op, after := range map[backend.Op]time.Duration{backend.Take: 70 * time.Millisecond, backend.Record: time.Second} {
			next := unsent{memory.New(nil), after}
			next.Shared().Budget = 100 * time.Millisecond
			s := shard.New(plain{next}, next)
			r := take("k", one(algo.FixedWindow(algo.PerDay(40)), 4), 1)
			r.Op = op
			_, err := layer.Ask(t.Context(), s, r)
			require.ErrorIs(t, err, backend.ErrUnavailable, "op %d", op)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "op %d", op)
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err = layer.Ask(short, s, r)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, "op %d", op)
			require.NotErrorIs(t, err, backend.ErrUnavailable, "op %d", op)
		}
	})
}

// unsent is a store on which a request waits, unsent, until a time is over or its context ends.
type unsent struct {
	*memory.Store
	after time.Duration
}

func (s unsent) Do(ctx context.Context, _ *backend.Request, _ *backend.Decision) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("not sent: %w", ctx.Err())
	case <-time.After(s.after):
		return backend.ErrUnavailable
	}
}
