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

// TestHooksOfTheClientRun: once per round trip, around the reply, in the order in
// which they were added; those added later too.
func TestHooksOfTheClientRun(t *testing.T) {
	client := redistest.Start(t).Client(t)
	var seen []string
	hook := func(name string) {
		client.AddHook(around{func(cmd redis.Cmder, next func() error) error {
			seen = append(seen, name+" before")
			err := next()
			seen = append(seen, name+" after")
			require.ErrorIs(t, err, cmd.Err())
			return err
		}})
	}
	hook("a")
	hook("b")
	l := limiter(t, client, patient, wide)
	allow := func() {
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
	allow() // loads the script
	seen = nil
	allow()
	require.Equal(t, []string{"a before", "b before", "b after", "a after"}, seen)
	hook("c")
	require.Eventually(t, func() bool {
		seen = nil
		allow()
		return len(seen) == 6
	}, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"a before", "b before", "c before", "c after", "b after", "a after"}, seen)
}

// TestSilentAddress: the first address of a name is silent, and the client is the user's.
// net.Dialer gives that address half of the dial timeout, and the probe of the circuit, which
// opens meanwhile, has as long. So the store decides soon after that.
func TestSilentAddress(t *testing.T) {
	server := redistest.Start(t)
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	dialer := net.Dialer{Resolver: redistest.Resolver(redistest.Silent(t, port), "127.0.0.1"), Timeout: 4200 * time.Millisecond}
	client := server.Client(t, func(o *redis.Options) {
		o.Addr, o.DialTimeout, o.Dialer = net.JoinHostPort("redis.test", port), dialer.Timeout, dialer.DialContext
	})
	l := limiter(t, client, &standalone.Options{}, wide)
	begin := time.Now()
	require.Eventually(t, func() bool {
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		return d.Source == headgate.FromStore
	}, 8*time.Second, 20*time.Millisecond)
	t.Log("decided after", time.Since(begin))
}

// around is a hook that runs f around every command.
type around struct {
	f func(cmd redis.Cmder, next func() error) error
}

func (a around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a.f(cmd, func() error { return next(ctx, cmd) })
	}
}
