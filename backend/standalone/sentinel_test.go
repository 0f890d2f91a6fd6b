package standalone_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSentinelFailover: once Sentinel has promoted the replica, the circuit's next trial
// is decided there, and what the replica has counted stands.
func TestSentinelFailover(t *testing.T) {
	if !redistest.Long() {
		t.Skip("Sentinel takes seconds to find the replica: run by make test-long")
	}
	ctx := context.Background()
	primary, replica := redistest.Start(t), redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr())
	second := replica.Client(t)
	require.NoError(t, second.Do(ctx, "replicaof", host, port).Err())
	synced(t, second)
	addr := primary.Sentinel(t, "main").Addr()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = sentinel.Close() })
	require.NoError(t, sentinel.Set(ctx, "main", "down-after-milliseconds", "500").Err())
	require.Eventually(t, func() bool {
		all := sentinel.Replicas(ctx, "main").Val()
		return len(all) == 1 && all[0]["flags"] == "slave" && all[0]["master-link-status"] == "ok"
	}, 30*time.Second, 100*time.Millisecond)

	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{addr}})
	t.Cleanup(func() { _ = client.Close() })
	l := limiter(t, client, &standalone.Options{Name: "main"}, wide)
	for range 10 {
		d, err := l.Allow(ctx, "key")
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)
	}
	require.EqualValues(t, 1, primary.Client(t).Wait(ctx, 1, 10*time.Second).Val())
	primary.Kill()
	require.Eventually(t, func() bool {
		d, err := l.Allow(ctx, "key")
		require.NoError(t, err)
		return d.Source == headgate.FromFailClosed
	}, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		role, ok := second.Do(ctx, "role").Val().([]any)
		return ok && role[0] == "master"
	}, 30*time.Second, 10*time.Millisecond)
	promoted := time.Now()
	var d headgate.Decision
	require.Eventually(t, func() bool {
		var err error
		d, err = l.Allow(ctx, "key")
		require.NoError(t, err)
		return d.Source == headgate.FromStore
	}, 5*time.Second, 10*time.Millisecond)
	after := time.Since(promoted)
	t.Logf("decided %v after the promotion", after)
	require.Less(t, after, 1350*time.Millisecond)
	require.EqualValues(t, 11, d.Used)
}
