package without_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/headgate-go/headgate/internal/without"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestMatch: one match is gone, and the others and the types of the chain stay.
func TestMatch(t *testing.T) {
	cause := &fs.PathError{Op: "read", Path: "x", Err: io.EOF}
	err := without.Match(fmt.Errorf("%w: %w", context.DeadlineExceeded, cause), context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, io.EOF)
	var path *fs.PathError
	require.True(t, errors.As(err, &path))
	require.EqualError(t, err, "read x: EOF")
	require.NotErrorIs(t, fmt.Errorf("again: %w", err), context.DeadlineExceeded)
}

// TestPassword: a text without a user keeps its error. In any other the user's place is cut,
// with the words around it that may be a password's.
func TestPassword(t *testing.T) {
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
		err := without.Password(cause)
		require.ErrorIs(t, err, cause)
		if want == "" {
			require.Equal(t, cause, err)
			continue
		}
		require.EqualError(t, err, want)
		require.NoError(t, errors.Unwrap(err))
	}
	require.NoError(t, without.Password(nil))
	require.True(t, redis.HasErrorPrefix(without.Password(reply("NOPERM User a@b")), "NOPERM"), "a reply stays one")
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}
