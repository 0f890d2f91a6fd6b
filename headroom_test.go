package headgate_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestHeadroom: calls by the limiter with headroom leave a part of each limit to the others.
func TestHeadroom(t *testing.T) {
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(algo.PerDay(10)), algo.SlidingWindow(algo.PerDay(10)), algo.BucketedWindow(algo.PerDay(10), 4), algo.SlidingLog(algo.PerDay(10)),
		algo.CompactLog(algo.PerDay(10)), algo.TokenBucket(algo.PerDay(3), 10), algo.Calendar(10, algo.Month(1), time.UTC),
	} {
		all := limiter(t, memory.New(nil), nil, headgate.Policy{Name: "api", Algorithm: a, OnFailure: headgate.FailClosed})
		batch, err := all.Headroom(0.2)
		require.NoError(t, err)
		d, err := batch.AllowAtMost(t.Context(), "k", 20)
		require.NoError(t, err)
		require.EqualValues(t, 8, d.Passed, a.String())
		require.Positive(t, d.NextAfter)
		d, err = all.AllowAtMost(t.Context(), "k", 20)
		require.NoError(t, err)
		require.EqualValues(t, 2, d.Passed, a.String())
		require.EqualValues(t, 10, d.Used)
		require.Equal(t, a.Limit().Period, batch.Policies()[0].Algorithm.Limit().Period)
		require.Equal(t, a.Identity(), batch.Policies()[0].Algorithm.Identity())
	}
	bucket := limiter(t, memory.New(nil), nil, headgate.Policy{Name: "api", Algorithm: algo.TokenBucket(algo.PerSecond(100), 50), OnFailure: headgate.FailClosed})
	for part, burst := range map[float64]int64{0: 50, 0.1: 45, 0.9: 5, 0.5: 25, 0.33: 33, 0.98: 1} {
		l, err := bucket.Headroom(part)
		require.NoError(t, err)
		require.Equal(t, algo.TokenBucket(algo.PerSecond(100), burst), l.Policies()[0].Algorithm)
	}
	for _, part := range []float64{-0.1, 1, 0.99, math.NaN()} {
		_, err := bucket.Headroom(part)
		require.ErrorAs(t, err, new(*headgate.InvalidError), part)
	}
	_, err := (*headgate.Limiter)(nil).Headroom(0.2)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}
