package standalone_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestCrowdOnAFrozenServer has 100,000 callers at length. Each has its answer within the
// budget, the lateness of a bare timer in the same run and 100 ms. One of ten is such a
// timer.
func TestCrowdOnAFrozenServer(t *testing.T) {
	callers, d := redistest.Steps(5_000, 100_000), time.Duration(redistest.Steps(500, 3000))*time.Millisecond
	server := redistest.Start(t)
	var seen faulttest.Observed
	l := seen.Limiter(t, standalone.New(server.Client(t), nil), faulttest.Bucket)
	server.Stop()
	defer server.Cont()
	late := redistest.Lateness(t, standalone.DefaultBudget)
	took := make([]time.Duration, callers) // the longest call of each
	faulttest.Loop(callers, d, time.Second, func(ctx context.Context, c, i int) {
		if c%10 == 0 {
			late.Wait()
			return
		}
		key := faulttest.Key(c, i, 20)
		begin := time.Now()
		_, _ = l.Allow(ctx, key)
		took[c] = max(took[c], time.Since(begin))
	})
	slowest, most := slices.Max(took), late.Within()+100*time.Millisecond
	t.Logf("%d callers: slowest answer after %v, of at most %v; %d undecided", callers, slowest, most, seen.Undecided.Load())
	if redistest.Long() {
		require.LessOrEqual(t, slowest, most)
	}
}
