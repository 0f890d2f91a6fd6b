//go:build go1.25

package headgate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestSpreadFailsLocal: in an outage the sub-keys of this process answer as one key does. What
// they show is an estimate of it, and a denial ends when the first of them has room.
func TestSpreadFailsLocal(t *testing.T) {
	for range 8 { // the first sub-key is drawn
		synctest.Test(t, func(t *testing.T) {
			s := newDownStore()
			s.down.Store(true)
			l := limiter(t, s, &headgate.Options{Instances: 2, Shards: 2},
				headgate.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.Per(4, time.Minute)), OnFailure: headgate.FailLocal})
			for range 2 {
				d, err := l.Allow(t.Context(), "x")
				require.NoError(t, err)
				require.True(t, d.Allowed)
				require.Equal(t, backend.Estimated, d.Known)
				require.EqualValues(t, 2, d.Limit)
				time.Sleep(20 * time.Second)
			}
			each := make([]headgate.State, 1)
			d, err := l.Do(t.Context(), headgate.Call{Key: "x", Each: each})
			require.NoError(t, err)
			require.Equal(t, 20*time.Second, d.RetryAfter)
			require.Equal(t, []headgate.State{d.State}, each)
		})
	}
}

// TestAtMostSpreadAllLocal: in an outage an AllowAtMost takes from each sub-key of this process,
// and returns when the next unit passes.
func TestAtMostSpreadAllLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDownStore()
		s.down.Store(true)
		l := limiter(t, s, &headgate.Options{Instances: 1, Shards: 4},
			headgate.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.Per(40, time.Minute)), OnFailure: headgate.FailLocal})
		for _, c := range []struct {
			n, passed int64
			next      time.Duration
		}{{15, 15, 0}, {40, 25, 50 * time.Second}, {1, 0, 0}} {
			d, err := l.AllowAtMost(t.Context(), "x", c.n)
			require.NoError(t, err)
			require.Equal(t, c.passed, d.Passed)
			require.Equal(t, c.passed > 0, d.Allowed)
			require.Equal(t, c.next, d.NextAfter)
			time.Sleep(10 * time.Second)
		}
	})
}
