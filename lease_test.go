package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestLeaseUntilADeadline: a lease of any length in its range is rounded up to the
// millisecond, by each verb that reserves.
func TestLeaseUntilADeadline(t *testing.T) {
	var sent time.Duration
	s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op.Opens() {
			sent = r.Lease.Length
		}
		return next.Do(ctx, r, d)
	})
	ctx, l := context.Background(), reserving(t, s, headgate.FailClosed)
	verbs := map[string]func(headgate.Call) error{
		"Reserve":     func(c headgate.Call) error { _, _, err := l.Reserve(ctx, c); return err },
		"WaitReserve": func(c headgate.Call) error { _, _, err := l.WaitReserve(ctx, c); return err },
		"ReserveAll": func(c headgate.Call) error {
			_, _, err := headgate.ReserveAll(ctx, headgate.Part{Limiter: l, Call: c})
			return err
		},
	}
	for name, reserve := range verbs {
		for length, want := range map[time.Duration]time.Duration{
			time.Second:                       time.Second,
			time.Second + 1:                   1001 * time.Millisecond,
			90*time.Second + time.Microsecond: 90_001 * time.Millisecond,
			24*time.Hour - 1:                  24 * time.Hour,
			24 * time.Hour:                    24 * time.Hour,
			0:                                 headgate.DefaultLease,
		} {
			require.NoError(t, reserve(headgate.Call{Key: "k", Lease: length}), "%s of %v", name, length)
			require.Equal(t, want, sent, "%s of %v", name, length)
		}
		require.NoError(t, reserve(headgate.Call{Key: "k", Lease: time.Until(time.Now().Add(time.Minute))}), name)
		for _, length := range []time.Duration{time.Second - 2*time.Millisecond, 24*time.Hour + 1, -1, 1<<63 - 1} {
			require.ErrorAs(t, reserve(headgate.Call{Key: "k", Lease: length}), new(*headgate.InvalidError), "%s of %v", name, length)
		}
	}
}

// TestLateCommit: a Commit long after the lease's end charges what exceeds the estimate, if the
// reservation asked for that, by each verb that reserves, and from another process too. Then
// the reservation is settled.
func TestLateCommit(t *testing.T) {
	ctx, now := context.Background(), time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	l := reserving(t, s, headgate.FailClosed)
	reserve := map[string]func(headgate.Call) (*headgate.Reservation, error){
		"Reserve": func(c headgate.Call) (*headgate.Reservation, error) {
			r, _, err := l.Reserve(ctx, c)
			return r, err
		},
		"WaitReserve": func(c headgate.Call) (*headgate.Reservation, error) {
			r, _, err := l.WaitReserve(ctx, c)
			return r, err
		},
		"ReserveAll": func(c headgate.Call) (*headgate.Reservation, error) {
			rs, _, err := headgate.ReserveAll(ctx, headgate.Part{Limiter: l, Call: c})
			return rs[0], err
		},
		"Resume": func(c headgate.Call) (*headgate.Reservation, error) {
			r, _, err := l.Reserve(ctx, c)
			require.NoError(t, err)
			return l.Resume(r.Token())
		},
	}
	for name, reserve := range reserve {
		c := headgate.Call{Key: "k", Costs: []int64{1, 20}, Lease: time.Second}
		forgotten, err := reserve(c)
		require.NoError(t, err, name)
		c.LateCommit = true
		late, err := reserve(c)
		require.NoError(t, err, name)
		gone, err := reserve(c)
		require.NoError(t, err, name)
		now = now.Add(9 * time.Minute)
		require.ErrorIs(t, forgotten.Commit(ctx, 1, 50), headgate.ErrNotHeld, name)
		requireUsed(t, l, 3, 60)
		require.NoError(t, late.Commit(ctx, 1, 50), name)
		requireUsed(t, l, 3, 90)
		require.ErrorIs(t, late.Commit(ctx, 1, 51), headgate.ErrNotHeld, name)
		now = now.Add(time.Minute)
		require.ErrorIs(t, gone.Commit(ctx, 1, 50), headgate.ErrNotHeld, name)
		requireUsed(t, l, 3, 90)
		require.NoError(t, l.Reset(ctx, "k"))
	}
}
