package standalone_test

import (
	"context"
	"testing"
	"time"

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
