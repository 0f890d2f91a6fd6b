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

// TestUpToWithinBudget: a run ends with its budget, and keeps what it took until then.
func TestUpToWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for trip, answers := range map[time.Duration]int64{60 * time.Millisecond: 1, 40 * time.Millisecond: 2} {
			m := memory.New(nil)
			m.Shared().Budget = 100 * time.Millisecond
			a := asked{takes{m, trip}, &atomic.Int64{}, &atomic.Int64{}}
			s := shard.New(plain{a}, m)
			list := one(algo.FixedWindow(algo.PerDay(160)), 16)
			do(t, s, peek("k", list, 1))
			a.n.Store(0)
			began := time.Now()
			d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: list.policies, Shards: list.k, Cost: 1, Run: 160, UpTo: true}})
			require.NoError(t, err)
			require.Equal(t, 10*answers, d.Passed)
			require.Equal(t, answers+1, a.n.Load())
			require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
		}
	})
}

// takes is a store of which every request takes a time, or ends with its context.
type takes struct {
	backend.Store
	trip time.Duration
}

func (s takes) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	select {
	case <-ctx.Done():
		return backend.ErrUnavailable
	case <-time.After(s.trip):
		return s.Store.Do(ctx, r, d)
	}
}

// TestBeyondBudget: where a call's own budget ends it before a sub-key has answered, its
// caller, who has no deadline, receives ErrUnavailable. A caller whose deadline ends the call
// receives that.
func TestBeyondBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := unsent{memory.New(nil), 70 * time.Millisecond}
		next.Shared().Budget = 100 * time.Millisecond
		s := shard.New(plain{next}, next)
		list := one(algo.FixedWindow(algo.PerDay(40)), 4)
		r := take("k", list, 1)
		_, err := layer.Ask(t.Context(), s, r)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = layer.Ask(short, s, r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, backend.ErrUnavailable)
		time.Sleep(time.Second) // the sum goes on without its caller

		do(t, shard.New(plain{next.Store}, next), peek("run", list, 1)) // the sum before the first take
		r = take("run", list, 1)
		r.Run, r.UpTo, next.after = 30, true, time.Second
		_, err = layer.Ask(t.Context(), shard.New(plain{next}, next), r)
		require.ErrorIs(t, err, backend.ErrUnavailable, "of a run")
	})
}

// TestNoTimeDeniesNothing: a call that has too little time left for a sub-key that has room
// again is not denied. Its failure mode decides.
func TestNoTimeDeniesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := newFar()
		s, list := shard.New(plain{next}, next), one(algo.FixedWindow(algo.PerDay(160)), 16)
		do(t, s, peek("k", list, 1)) // the sum before the first take
		for range 16 {
			require.True(t, do(t, s, take("k", list, 10)).Allowed)
		}
		reset := take("k", list, 1)
		reset.Op = backend.Reset
		do(t, shard.New(plain{next.Store}, memory.New(nil)), reset) // by another process
		_, err := layer.Ask(t.Context(), s, take("k", list, 1))
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.True(t, do(t, s, take("k", list, 1)).Allowed, "the sum has shown room")
	})
}

// TestShortOfTime: a caller that leaves too little time for a round trip shows nothing of the
// sub-keys.
func TestShortOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := newFar()
		s, list := shard.New(plain{next}, next), one(algo.FixedWindow(algo.PerDay(160)), 2)
		do(t, s, peek("k", list, 1)) // the sum before the first take
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.AtMost, backend.Borrow} {
			r := take("k", list, 1)
			switch r.Op = op; op {
			case backend.Borrow:
				r.Cost = 0
			case backend.AtMost:
				r.Op, r.Run, r.UpTo = backend.Take, 1, true
			}
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := layer.Ask(short, s, r)
			cancel()
			require.Error(t, err)
			require.True(t, do(t, s, take("k", list, 1)).Allowed, "%v", op)
		}
	})
}

// far is a store that is a round trip away. It refuses what it can't answer in time, as a
// store on Redis does.
type far struct{ *memory.Store }

func newFar() far {
	s := memory.New(nil)
	s.Shared().Local, s.Shared().Budget = false, 100*time.Millisecond
	return far{s}
}

func (s far) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	const trip = 60 * time.Millisecond
	if ends, ok := ctx.Deadline(); ok && time.Until(ends) < trip {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, layer.ErrExcused)
	}
	time.Sleep(trip)
	return s.Store.Do(ctx, r, d)
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
