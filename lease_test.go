package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
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
