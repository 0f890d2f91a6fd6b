package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

var memoryKeys = flag.Int("keys", 500, "keys of TestMemory; docs/operations.md has those of 1,000,000")

// rows are what docs/operations.md has the memory of.
var rows = []struct {
	name, policies string
	calls          int // per key
}{
	{"FixedWindow", "{a: {algorithm: fixed-window, limit: 1000, period: 1d}}", 1},
	{"SlidingWindow", "{a: {algorithm: sliding-window, limit: 1000, period: 1d}}", 1},
	{"TokenBucket", "{a: {algorithm: token-bucket, limit: 1000, period: 1d, burst: 1000}}", 1},
	{"BucketedWindow, 10 buckets", "{a: {algorithm: bucketed-window, limit: 1000, period: 1d, buckets: 10}}", 1},
	{"SlidingLog, 1 call", "{a: {algorithm: sliding-log, limit: 1000, period: 1d}}", 1},
	{"SlidingLog, 10 calls", "{a: {algorithm: sliding-log, limit: 1000, period: 1d}}", 10},
	{"InFlight, 1 running call", "{a: {algorithm: in-flight, limit: 1000}}", 1},
	{"FixedWindow, SlidingWindow and TokenBucket", "{a: {algorithm: fixed-window, limit: 1000, period: 1d}, b: {algorithm: sliding-window, limit: 1000, period: 1d}, c: {algorithm: token-bucket, limit: 1000, period: 1d, burst: 1000}}", 1},
}

// TestMemory prints used_memory per key: names, states, expiries and the
// server's tables.
func TestMemory(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	for _, row := range rows {
		f, err := policyfile.Parse("rows", []byte("policies: "+row.policies), &policyfile.Options{OnFailure: headgate.FailClosed})
		require.NoError(t, err)
		filled := func(calls int) int64 {
			s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: time.Minute})
			require.NoError(t, err)
			l, err := headgate.New(s, f.For("").Policies, nil)
			require.NoError(t, err)
			fill(t, l, calls)
			require.NoError(t, s.Close())
			return usedMemory(t, admin)
		}
		filled(1) // the server keeps the scripts
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		before := usedMemory(t, admin)
		bytes := (filled(row.calls) - before) / int64(*memoryKeys)
		t.Logf("%-45s %4d bytes per key", row.name, bytes)
		require.Greater(t, bytes, int64(90))
		require.Less(t, bytes, int64(900))
	}
}

// fill calls for each key, many at a time, so that the store batches.
func fill(t *testing.T, l *headgate.Limiter, calls int) {
	t.Helper()
	const callers = 512
	call := l.Allow
	if l.Policies()[0].Algorithm.Kind().Leased() {
		call = func(ctx context.Context, key string) (headgate.Decision, error) {
			_, d, err := l.Reserve(ctx, headgate.Call{Key: key})
			return d, err
		}
	}
	var group errgroup.Group
	for first := range callers {
		group.Go(func() error {
			for i := first; i < *memoryKeys; i += callers {
				for range calls {
					if d, err := call(t.Context(), fmt.Sprintf("user:%08d", i)); err != nil || !d.Allowed {
						return fmt.Errorf("key %d: %v %v", i, err, d.Err)
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// usedMemory waits until the server has freed the buffers of the store's connections.
func usedMemory(t *testing.T, admin *redis.Client) int64 {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Count(admin.ClientList(t.Context()).Val(), "\n") == 1
	}, 10*time.Second, time.Millisecond)
	info, err := admin.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	_, after, _ := strings.Cut(info, "used_memory:")
	n, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	require.NoError(t, err)
	return n
}
