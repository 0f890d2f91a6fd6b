package standalone_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestKilledConnections closes all connections each 50 ms under 64 callers: the calls
// in flight are hit, and no circuit opens.
func TestKilledConnections(t *testing.T) {
	t.Parallel()
	server, addr, all := ways(t)
	admin := server.Client(t)
	for _, w := range all {
		t.Run(w.String(), func(t *testing.T) {
			var seen faulttest.Observed
			l := seen.Limiter(t, w.store(t, addr(w), patient), faulttest.Bucket)
			d := time.Duration(redistest.Steps(1, 10)) * time.Second
			kills, decided := 0, int64(0)
			stop := make(chan struct{})
			wait := faulttest.Go(1, func(int) {
				for {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						before := decided
						if decided = seen.Store.Load(); decided == before && !redistest.Long() {
							continue // a busy machine has decided no call since the last one
						}
						kills++
						_ = admin.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err()
					}
				}
			})
			faulttest.Loop(64, d, time.Millisecond, func(ctx context.Context, c, i int) {
				_, _ = l.Allow(ctx, faulttest.Key(c, i, 20))
			})
			close(stop)
			wait()
			undecided := int(seen.Undecided.Load())
			t.Logf("%d kills: %d of %d calls undecided, %.1f per kill, %d openings; %s", kills,
				undecided, seen.Store.Load()+seen.Undecided.Load(), float64(undecided)/float64(kills), seen.Openings.Load(), seen.Why())
			require.Zero(t, seen.Openings.Load())
			require.LessOrEqual(t, undecided, 64*kills)
		})
	}
}
