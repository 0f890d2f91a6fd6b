package client_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestOnceIsSentOnce: a client with go-redis' defaults sends a lost EVALSHA four
// times, and a Once one time.
func TestOnceIsSentOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy, direct := redistest.NewProxy(t, server.Addr()), server.Client(t)
	lossy := server.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr(), 0 })
	ctx := context.Background()
	sha := direct.ScriptLoad(ctx, "return redis.call('INCR', KEYS[1])").Val()
	proxy.Set(redistest.ResetAfterRequest.Times(3))
	cmd := client.Once{StringCmd: *redis.NewStringCmd(ctx, "evalsha", sha, 1, "k")}
	require.Error(t, lossy.Process(ctx, &cmd))
	require.Equal(t, "1", direct.Get(ctx, "k").Val())
}
