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

// TestHide: a text without a user keeps its error. In any other the user's place is cut,
// with the words around it that may be a password's.
func TestHide(t *testing.T) {
	for text, want := range map[string]string{
		"dial tcp 127.0.0.1:6379: connection refused":                   "",
		"ERR Error, script: f00, on @user_script:34.":                   "",
		"@user_script:2: no":                                            "",
		"dial tcp: address redis://a:b@h:1: too many colons in address": "dial tcp: address (hidden) too many colons in address",
		"dial tcp: address redis://a:b c d@h:1: no":                     "dial tcp: address (hidden) no",
		"two:\nat a:b@h:1\nat c:d@h:2":                                  "two:\nat (hidden)\nat (hidden)",
		"ERR unknown command 'auth', with args beginning with: 'a' ":    "ERR unknown command 'auth', with args beginning with: (hidden)",
	} {
		cause := errors.New(text)
		err := client.Hide(cause)
		require.ErrorIs(t, err, cause)
		if want == "" {
			require.Equal(t, cause, err)
			continue
		}
		require.EqualError(t, err, want)
		require.NoError(t, errors.Unwrap(err))
	}
	require.NoError(t, client.Hide(nil))
	require.True(t, redis.HasErrorPrefix(client.Hide(reply("NOPERM User a@b")), "NOPERM"), "a reply stays one")
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestNoLookup: to make a client looks no address up, and prints nothing of one that has
// none.
func TestNoLookup(t *testing.T) {
	c := redis.NewClient(client.Options(&redis.Options{Addr: "no-such-name.invalid:6379"}, time.Second))
	defer c.Close()
	require.Equal(t, maintnotifications.EndpointTypeNone, c.Options().MaintNotificationsConfig.EndpointType)
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
