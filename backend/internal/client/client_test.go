package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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

// TestNoLookup: to make a client looks no address up, and prints nothing of one that has
// none.
func TestNoLookup(t *testing.T) {
	c := redis.NewClient(client.Options(&redis.Options{Addr: "no-such-name.invalid:6379"}, time.Second))
	defer c.Close()
	require.Equal(t, maintnotifications.EndpointTypeNone, c.Options().MaintNotificationsConfig.EndpointType)
}

// TestNoConnectionAfterClose: a dial that ends after Close began leaves no connection.
func TestNoConnectionAfterClose(t *testing.T) {
	o := client.Options(&redis.Options{Addr: redistest.Shared(t).Addr()}, time.Second)
	require.NoError(t, client.Close(redis.NewClient(o)))
	c, err := o.Dialer(context.Background(), "tcp", o.Addr)
	require.NoError(t, err)
	_, err = c.Write([]byte("PING\r\n"))
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, c.Close())
}

// TestUntimed: an error that matches a deadline keeps what else it matches.
func TestUntimed(t *testing.T) {
	cause := errors.New("a cause")
	err := client.Untimed(fmt.Errorf("dial tcp: i/o timeout: %w: %w", context.DeadlineExceeded, cause))
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, cause)
	require.ErrorAs(t, client.Untimed(fmt.Errorf("%w: %w", context.DeadlineExceeded, &net.OpError{Err: cause})), new(*net.OpError))
	require.Equal(t, cause, client.Untimed(cause))
}

// TestOnePool: a client's pipelines take their connections from the pool that single commands
// have, also in a release of go-redis that has another one for them.
func TestOnePool(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	user := server.Client(t, func(o *redis.Options) { o.PipelineReadBufferSize = 1 << 16 }) // in 9.22 this makes the other pool
	ours := redis.NewClient(client.Options(&redis.Options{Addr: server.Addr()}, time.Second))
	t.Cleanup(func() { _ = client.Close(ours) })
	require.Equal(t, -1, ours.Options().PipelinePoolSize)
	for name, c := range map[string]redis.Cmdable{"the user's": client.NewView(user, time.Second).Conn, "ours": ours} {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() })
		require.NoError(t, err, name)
	}
	require.EqualValues(t, 1, user.PoolStats().TotalConns)
	require.Positive(t, ours.PoolStats().Hits+ours.PoolStats().Misses)
}
