//go:build go1.25

package headgate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestReservedWithinBudget: a Reserve whose ID is held ends within the store's budget, although it
// sends a second request, for the counts.
func TestReservedWithinBudget(t *testing.T) {
	const budget = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		trips := map[backend.Op]time.Duration{}
		s := &fake{Store: memory.New(nil), shared: &layer.Shared{Budget: budget}}
		s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(trips[r.Op], budget)):
				return next.Do(ctx, r, d)
			}
		}
		l, ctx := limiter(t, s, nil, daily("p", 10)), context.Background()
		c := headgate.Call{Key: "k", ID: "job", Costs: []int64{4}, Lease: time.Hour}
		_, _, err := l.Reserve(ctx, c)
		require.NoError(t, err)
		for look, known := range map[time.Duration]bool{30 * time.Millisecond: true, time.Minute: false} {
			trips[backend.Reserve], trips[backend.Peek] = 60*time.Millisecond, look
			begin := time.Now()
			r, d, err := l.Reserve(ctx, c)
			require.NoError(t, err)
			require.True(t, d.Allowed && d.Err == nil && d.Source == headgate.FromStore, "%+v", d)
			require.Equal(t, known, d.Known != backend.NotCounted)
			require.Equal(t, min(budget, 60*time.Millisecond+look), time.Since(begin))
			require.NoError(t, r.Extend(ctx))
		}
	})
}
