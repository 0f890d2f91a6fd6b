package batch_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestProbeNeedsNoPool: a probe has its answer while the application holds each connection
// of the client's pool.
func TestProbeNeedsNoPool(t *testing.T) {
	client := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, time.Minute })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	held := client.Conn()
	defer held.Close()
	require.NoError(t, held.Ping(ctx).Err()) // takes the one connection
	require.NoError(t, batch.Alone(client, &layer.Shared{}, 200*time.Millisecond).Ready(ctx))
}
