//go:build go1.25

package headgate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestBorrowOfASpreadKey calls one key that lies in four shares from eight processes under
// virtual time. Each process borrows of one share at a time, and no call more passes than
// the key's limit allows.
func TestBorrowOfASpreadKey(t *testing.T) {
	for _, load := range []int{85, 102, 200} {
		t.Run(fmt.Sprint(load), func(t *testing.T) {
			f := fleet{
				Algorithm: algo.FixedWindow(algo.PerSecond(fleetLimit)), borrow: fleetBorrow, trip: fleetTrip, shards: 4,
				lasts: time.Duration(redistest.Steps(2_000, 10_000)) * time.Millisecond, callers: callers(8, fleetLimit*float64(load)/100),
			}
			run := f.run(t)
			g, home, passed := f.figures(run), 0, 0
			for _, c := range run.calls {
				if c.allowed {
					passed++
				}
				if c.allowed && c.here {
					home++
				}
			}
			t.Logf("%d %%: %.3f of the passed calls at home, %.1f round trips per 1,000 calls, %.4f admitted of strict",
				load, float64(home)/float64(passed), g.trips, g.ofStrict)
			require.LessOrEqual(t, mostInWindow(spansOf(run.calls), time.Second), int64(fleetLimit))
			require.Greater(t, float64(home)/float64(passed), 0.8)
			require.GreaterOrEqual(t, g.ofStrict, 0.99)
		})
	}
}
