//go:build go1.25

package headgate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// counted counts the extensions that a store is asked for.
type counted struct {
	*lossy
	extends atomic.Int64
}

func newCounted() *counted {
	s := &counted{lossy: lossyOf(memory.New(&memory.Options{Now: time.Now}))}
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op == backend.Extend {
			s.extends.Add(1)
		}
		return s.decide(ctx, next, r, d)
	}
	return s
}

// inBubble runs f with a store on the bubble's clock and a limiter of one slot.
func inBubble(t *testing.T, mode headgate.FailureMode, f func(*testing.T, *counted, *headgate.Limiter)) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		f(t, s, limiter(t, s, &headgate.Options{Instances: 1},
			headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: mode}))
	})
}

func held(t *testing.T, l *headgate.Limiter) *headgate.Reservation {
	t.Helper()
	r, d, err := l.Reserve(t.Context(), headgate.Call{Key: "k", Lease: 3 * time.Second})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	return r
}

// TestSettledHoldIsSilent: a Hold that ends after the Commit is no error of the caller's.
func TestSettledHoldIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, perMinute)
		r := reservedSilently(t, l, seen)
		_, release := r.Hold(t.Context())
		defer release()
		require.NoError(t, r.Commit(t.Context()))
		seen.forget()
		time.Sleep(headgate.DefaultLease)
		require.Empty(t, seen.of(headgate.EventDecision))
	})
}

// TestHoldExtends: a call of many leases keeps its slot, and asks once per third of
// one. A short call asks nothing, and what was released asks no more.
func TestHoldExtends(t *testing.T) {
	inBubble(t, headgate.FailClosed, func(t *testing.T, s *counted, l *headgate.Limiter) {
		r := held(t, l)
		ctx, release := r.Hold(t.Context())
		time.Sleep(time.Minute + time.Millisecond)
		require.NoError(t, ctx.Err())
		require.EqualValues(t, 60, s.extends.Load())
		d, err := l.Peek(t.Context(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.False(t, d.Allowed)
		release()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, r.Commit(t.Context()))

		r = held(t, l)
		_, release = r.Hold(t.Context())
		time.Sleep(900 * time.Millisecond)
		release()
		require.NoError(t, r.Commit(t.Context()))
		time.Sleep(time.Minute)
		require.EqualValues(t, 60, s.extends.Load())
	})
}

// TestHoldAgain: a second Hold begins from the last extension, whoever made it.
func TestHoldAgain(t *testing.T) {
	inBubble(t, headgate.FailClosed, func(t *testing.T, _ *counted, l *headgate.Limiter) {
		r := held(t, l)
		ctx, release := r.Hold(t.Context())
		time.Sleep(5 * time.Second)
		require.NoError(t, ctx.Err())
		release()
		require.NoError(t, r.Extend(t.Context()))
		ctx, release = r.Hold(t.Context())
		defer release()
		time.Sleep(5 * time.Second)
		require.NoError(t, ctx.Err(), context.Cause(ctx))
	})
}

// TestHoldEndsTheCall: a call whose slot may be another's ends, and is told why.
func TestHoldEndsTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*testing.T, *counted, *headgate.Limiter)
		why  error
	}{
		"reset":   {func(t *testing.T, _ *counted, l *headgate.Limiter) { require.NoError(t, l.Reset(t.Context(), "k")) }, headgate.ErrNotHeld},
		"lost":    {func(_ *testing.T, s *counted, _ *headgate.Limiter) { s.lose(onExtend, 0) }, headgate.ErrLeaseEnded},
		"unknown": {func(_ *testing.T, s *counted, _ *headgate.Limiter) { s.lose(0, onExtend) }, headgate.ErrLeaseEnded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, headgate.FailClosed, func(t *testing.T, s *counted, l *headgate.Limiter) {
				r := held(t, l)
				began := time.Now()
				ctx, release := r.Hold(t.Context())
				defer release()
				c.lose(t, s, l)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), c.why)
				require.LessOrEqual(t, time.Since(began), 3*time.Second, "before another may have the slot")
			})
		})
	}
}

// TestHoldFailsOpen: where the store can't be asked a call that fails open goes on. Once
// the store answers that the lease has ended, the call ends.
func TestHoldFailsOpen(t *testing.T) {
	inBubble(t, headgate.FailOpen, func(t *testing.T, s *counted, l *headgate.Limiter) {
		r := held(t, l)
		ctx, release := r.Hold(t.Context())
		defer release()
		s.lose(onExtend, 0)
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
		s.lose(0, 0)
		<-ctx.Done()
		require.NotEqual(t, context.Canceled, context.Cause(ctx))
	})
}

// TestHoldWithoutSlots: a lost lease of rates alone does not end the call.
func TestHoldWithoutSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCounted()
		l := reserving(t, s, headgate.FailClosed)
		r, _ := reserve(t, l, 1)
		ctx, release := r.Hold(t.Context())
		defer release()
		require.NoError(t, l.Reset(t.Context(), "k"))
		time.Sleep(time.Hour)
		require.NoError(t, ctx.Err())
		require.EqualValues(t, 1, s.extends.Load())
	})
}

// TestHoldOfNothing also holds for a reservation that failed open, and for one of a
// token, which is extended at once.
func TestHoldOfNothing(t *testing.T) {
	inBubble(t, headgate.FailOpen, func(t *testing.T, s *counted, l *headgate.Limiter) {
		s.lose(onAll, 0)
		for _, r := range []*headgate.Reservation{nil, {}, held(t, l)} {
			ctx, release := r.Hold(t.Context())
			time.Sleep(time.Minute)
			require.NoError(t, ctx.Err())
			release()
			require.Error(t, ctx.Err())
		}
	})
	inBubble(t, headgate.FailClosed, func(t *testing.T, s *counted, l *headgate.Limiter) {
		r, err := l.Resume(held(t, l).Token())
		require.NoError(t, err)
		ctx, release := r.Hold(t.Context())
		defer release()
		synctest.Wait()
		require.EqualValues(t, 1, s.extends.Load())
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
	})
}

// TestHoldBesideShadowSlot: a shadow of slots ends no call while the store is down.
func TestHoldBesideShadowSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDownStore()
		l, err := headgate.New(s, []headgate.Policy{
			{Name: "a", Algorithm: algo.FixedWindow(algo.Per(10, 24*time.Hour)), OnFailure: headgate.FailOpen},
			{Name: "s", Algorithm: algo.InFlight(5), OnFailure: headgate.FailClosed, Shadow: true},
		}, nil)
		require.NoError(t, err)
		r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Lease: time.Second})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		s.down.Store(true)
		ctx, release := r.Hold(context.Background())
		defer release()
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, ctx.Err(), "%v", context.Cause(ctx))
	})
}

// TestHoldOfDeniedShadowSlot: a slot that only a shadow denied ends no call.
func TestHoldOfDeniedShadowSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "s", Algorithm: algo.InFlight(1), OnFailure: headgate.FailOpen, Shadow: true}}, nil)
		require.NoError(t, err)
		for i := range 2 {
			r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Lease: time.Second})
			require.NoError(t, err)
			require.True(t, d.Allowed)
			ctx, release := r.Hold(context.Background())
			defer release()
			time.Sleep(500 * time.Millisecond)
			require.NoError(t, ctx.Err(), "call %d: %v", i, context.Cause(ctx))
		}
	})
}

// TestHoldOfAllReservation: a reservation of several keys ends its call when its lease
// does, which began before the Hold.
func TestHoldOfAllReservation(t *testing.T) {
	inBubble(t, headgate.FailClosed, func(t *testing.T, s *counted, l *headgate.Limiter) {
		began := time.Now()
		parts := []headgate.Part{l.Part("k"), l.Part("l")}
		parts[0].Call.Lease, parts[1].Call.Lease = 3*time.Second, 3*time.Second
		rs, d, err := headgate.ReserveAll(t.Context(), parts...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		time.Sleep(900 * time.Millisecond)
		s.lose(onExtend, 0)
		ctx, release := rs[1].Hold(t.Context())
		defer release()
		synctest.Wait()
		require.Zero(t, s.extends.Load(), "a third of the length has not passed")
		<-ctx.Done()
		require.LessOrEqual(t, time.Since(began), 3*time.Second, "before another may have the slot")
	})
}

// TestHoldBesideCommit: the call's own settlement does not end the context that it may have.
func TestHoldBesideCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bubble := memory.New(&memory.Options{Now: time.Now})
		s := &fake{Store: bubble, shared: bubble.Shared(), do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			err := next.Do(ctx, r, d)
			if r.Op == backend.Settle { // takes its time, and less where the context ends
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
					return backend.ErrPerhapsCounted
				}
			}
			return err
		}}
		l := limiter(t, s, nil, headgate.Policy{Name: "s", Algorithm: algo.InFlight(1), OnFailure: headgate.FailOpen})
		r := held(t, l)
		ctx, release := r.Hold(t.Context())
		defer release()
		time.Sleep(900 * time.Millisecond) // the first extension comes 100 ms later
		require.NoError(t, r.Commit(ctx))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), headgate.ErrNotHeld)
	})
}

// TestExtendFailsLocal: a slot in this process whose lease has ended may be another's.
func TestExtendFailsLocal(t *testing.T) {
	inBubble(t, headgate.FailLocal, func(t *testing.T, s *counted, l *headgate.Limiter) {
		s.lose(onAll, 0)
		r := held(t, l)
		time.Sleep(2 * time.Second)
		require.NoError(t, r.Extend(t.Context()))
		time.Sleep(4 * time.Second)
		held(t, l)
		require.ErrorIs(t, r.Extend(t.Context()), headgate.ErrLeaseEnded)
		ctx, release := r.Hold(t.Context())
		defer release()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), headgate.ErrLeaseEnded)
	})
}

// TestExtendFailsLocalLater: also once this process has forgotten it. What no process held has no end.
func TestExtendFailsLocalLater(t *testing.T) {
	for mode, want := range map[headgate.FailureMode]error{headgate.FailLocal: headgate.ErrLeaseEnded, headgate.FailOpen: nil} {
		inBubble(t, mode, func(t *testing.T, s *counted, l *headgate.Limiter) {
			s.lose(onAll, 0)
			r := held(t, l)
			time.Sleep(2 * time.Second)
			require.NoError(t, r.Extend(t.Context()))
			time.Sleep(7 * time.Second)
			held(t, l)
			require.Equal(t, want, r.Extend(t.Context()))
			s.lose(0, 0)
			require.Equal(t, want, r.Extend(t.Context()))
		})
	}
}

// TestHoldOfSeveralKeys: the leases of all keys are extended while the call runs.
func TestHoldOfSeveralKeys(t *testing.T) {
	slot := headgate.Policy{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed}
	l := limiter(t, memory.New(nil), nil, slot)
	a, b := l.Part("a"), l.Part("b")
	a.Call.Lease, b.Call.Lease = time.Second, time.Second
	rs, d, err := headgate.ReserveAll(context.Background(), a, b)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	ctx, release := rs.Hold(context.Background())
	defer release()
	require.NoError(t, l.Reset(context.Background(), "b"))
	<-ctx.Done() // within a third of the lease
	require.ErrorIs(t, context.Cause(ctx), headgate.ErrNotHeld)
	release()
	require.NoError(t, rs.Close())
}
