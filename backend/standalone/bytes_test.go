package standalone_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestBytesPerKey prints the bytes of the README's table: MEMORY USAGE of all that
// is stored for one policy and a key of 13 bytes. A log holds 128 or 1,000 calls.
func TestBytesPerKey(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	client := server.Client(t)
	store := standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	hour := algo.PerHour(100_000)
	for _, c := range []struct {
		name  string
		a     algo.Algorithm
		calls int
	}{
		{"FixedWindow", algo.FixedWindow(hour), 3},
		{"SlidingWindow", algo.SlidingWindow(hour), 3},
		{"BucketedWindow(10)", algo.BucketedWindow(hour, 10), 3},
		{"BucketedWindow(60)", algo.BucketedWindow(hour, 60), 3},
		{"BucketedWindow(240)", algo.BucketedWindow(hour, 240), 3},
		{"SlidingLog, 128 calls", algo.SlidingLog(hour), 128},
		{"SlidingLog, 1,000 calls", algo.SlidingLog(hour), 1000},
		{"CompactLog, 10 calls", algo.CompactLog(hour), 10},
		{"CompactLog, 1,000 calls", algo.CompactLog(hour), 1000},
		{"TokenBucket", algo.TokenBucket(hour, 100), 3},
		{"Calendar", algo.Calendar(100, algo.Month(1), time.FixedZone("Europe/Berlin", 3600)), 3},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		l, err := headgate.New(store, []headgate.Policy{{Name: "api", Algorithm: c.a, OnFailure: headgate.FailClosed}}, nil)
		require.NoError(t, err)
		for range c.calls {
			d, err := l.Allow(ctx, "user:12345678")
			require.NoError(t, err)
			require.True(t, d.Allowed, d.Err)
		}
		total := int64(0)
		for _, key := range client.Keys(ctx, "*").Val() {
			total += client.MemoryUsage(ctx, key).Val()
		}
		require.Positive(t, total)
		t.Logf("%-24s %6d bytes, %d per call", c.name, total, total/int64(c.calls))
	}
}
