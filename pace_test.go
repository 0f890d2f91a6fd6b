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
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func queueOf(l algo.Limit, burst int64, delay time.Duration) []headgate.Policy {
	return []headgate.Policy{{Name: "queue", Algorithm: algo.LeakyQueue(l, burst, delay), OnFailure: headgate.FailClosed}}
}

// TestPace: calls go on at the rate, and what would wait too long is denied at once.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(nil), nil, queueOf(algo.PerSecond(10), 1, 300*time.Millisecond)...)
		begin, gone := time.Now(), make(chan time.Duration, 5)
		for range 5 {
			go func() {
				d, err := l.Pace(context.Background(), "k")
				require.NoError(t, err)
				if gone <- time.Since(begin); !d.Allowed {
					require.Equal(t, 100*time.Millisecond, d.RetryAfter)
				}
			}()
		}
		var all []time.Duration
		for range 5 {
			all = append(all, <-gone)
		}
		const step = 100 * time.Millisecond
		require.Equal(t, []time.Duration{0, 0, step, 2 * step, 3 * step}, all)
	})
}

// TestPaceKeepsItsPlace: a call whose context ends stays charged.
func TestPaceKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(nil), nil, queueOf(algo.PerSecond(1), 1, time.Minute)...)
		_, err := l.Pace(context.Background(), "k")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		begin := time.Now()
		d, err := l.Pace(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second/2, time.Since(begin))
		require.Equal(t, time.Second, d.Delay)
		d, err = l.Pace(context.Background(), "k")
		require.NoError(t, err)
		require.Equal(t, 3*time.Second/2, d.Delay)
		_, err = l.Pace(context.Background(), "")
		require.ErrorAs(t, err, new(*headgate.InvalidError))
	})
}

// TestQueueIsWhole: a queue is neither lent nor spread, one call takes at most its burst, and All
// waits for the slower key.
func TestQueueIsWhole(t *testing.T) {
	slow, fast := queueOf(algo.PerSecond(1), 2, time.Minute), queueOf(algo.PerSecond(10), 4, time.Minute)
	server := redistest.Shared(t)
	for _, s := range []backend.Store{memory.New(nil), standalone.New(server.Client(t), patient), oneKey(memory.New(nil))} {
		l := limiter(t, s, nil, slow...)
		var invalid *headgate.InvalidError
		_, err := l.WithShards(2)
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "shards", invalid.What)
		if s.Capabilities().Ops.Has(backend.Borrow) {
			_, err = l.WithBorrow(time.Second)
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "borrow", invalid.What)
		}
		key := t.Name()
		d, err := l.AllowAtMost(t.Context(), key, 9)
		require.NoError(t, err)
		require.EqualValues(t, 2, d.Passed)
		other, err := l.With(fast...)
		require.NoError(t, err)
		d, err = headgate.All(t.Context(), other.Part(key+"fast", 4), l.Part(key, 1), other.Part(key+"third", 1))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.InDelta(t, time.Second, d.Delay, float64(time.Second/2))
		d, err = l.AllowAtMost(t.Context(), key, 0)
		require.NoError(t, err)
		require.Equal(t, headgate.FromNone, d.Source)
	}
}

// TestPaceOnAServer: 16 callers of a queue of 200/s, a burst of one and a delay of half a unit's
// time, on a server. With HEADGATE_LONG it takes three seconds, and prints how many go on.
func TestPaceOnAServer(t *testing.T) {
	lasts := time.Second / 4
	if redistest.Long() {
		lasts = 3 * time.Second
	}
	store := standalone.New(redistest.Shared(t).Client(t), patient)
	for name, a := range map[string]algo.Algorithm{
		"LeakyQueue": algo.LeakyQueue(algo.PerSecond(200), 1, 2500*time.Microsecond), "TokenBucket": algo.TokenBucket(algo.PerSecond(200), 1),
	} {
		l := limiter(t, store, nil, headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed})
		var gone atomic.Int64
		begin := time.Now()
		faulttest.Go(16, func(int) {
			for time.Since(begin) < lasts {
				d, err := l.Pace(t.Context(), t.Name())
				if err != nil || d.Err != nil {
					t.Error(err, d.Err)
					return
				}
				if d.Allowed {
					gone.Add(1)
				} else {
					time.Sleep(d.RetryAfter)
				}
			}
		})()
		most := int64(lasts/(5*time.Millisecond)) + 1
		t.Logf("%s: %d of %d calls in %v", name, gone.Load(), most, lasts)
		require.LessOrEqual(t, gone.Load(), most+16) // those that wait at the end
		require.Positive(t, gone.Load())             // how many is the machine's matter
	}
}
