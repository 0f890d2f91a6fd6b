package standalone

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestOpenRefuses: an address alone is no URL, and the error shows one.
func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{"localhost:6379", "127.0.0.1:6379", "http://localhost:6379", ""} {
		s, err := Open(url, nil)
		require.ErrorContains(t, err, "headgate: redis url: ")
		require.ErrorContains(t, err, "want redis://host:port")
		require.Nil(t, s)
	}
}

// TestOpenHidesThePassword: no error of a URL quotes a password, nor a part of it.
func TestOpenHidesThePassword(t *testing.T) {
	for _, url := range []string{
		"redis://ops:s3%cret@localhost", "redis://ops:12/s3cret@localhost", "redis://ops:12/0?s3cret=1@localhost",
		"redis://localhost/s3cret",
	} {
		_, err := Open(url, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "cret", url)
	}
}

// TestMadeClientIsClosed: a batch asks the client for its options before it
// sends. A client that is made so, before or after Close, does not stay open
// with its idle connections.
func TestMadeClientIsClosed(t *testing.T) {
	url := "redis://" + redistest.Shared(t).Addr()
	for _, late := range []bool{false, true} {
		s, err := Open(url, nil)
		require.NoError(t, err)
		if late {
			require.NoError(t, s.Close())
		}
		require.NotZero(t, s.owned.Options().PoolSize)
		if !late {
			require.NoError(t, s.Close())
		}
		require.ErrorIs(t, s.owned.client().Ping(context.Background()).Err(), redis.ErrClosed, "late %v", late)
	}
}
