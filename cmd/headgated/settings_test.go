package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"-config", "x", "-redis", "a", "-cluster", "b"}, {"-config", "x", "-sentinel", "m"}, {"-config", "x", "-tls-cert", "c"},
		{"-config", "x", "-budget", "0"}, {"-config", "x", "-log-level", "loud"}, {"-config", "x", "-log-format", "xml"}, {"-config", "x", "y"},
		{"-config", "x", "-max-message", "0"}, {"-config", "/does/not/exist"}, {"-config", ".", "-grpc", "nowhere"},
	} {
		var out bytes.Buffer
		code := run(context.Background(), append([]string{"headgated", "-http", "", "-metrics", ""}, args...), nil, io.Discard, &out)
		require.Equal(t, 2, code, args)
		require.NotEmpty(t, out.String(), args)
	}
	s, _, err := settingsOf([]string{"headgated", "-http", "h"}, []string{"HEADGATED_CONFIG=c", "HEADGATED_HTTP=x", "HEADGATED_BUDGET=7ms"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "c", s.config)
	require.Equal(t, "h", s.http, "flags stand above the environment")
	require.Equal(t, 7*time.Millisecond, s.budget)
	require.Equal(t, "127.0.0.1:8081", s.grpc, "loopback alone by default")

	for _, address := range []string{":6380", "0.0.0.0:6380", "[::]:6380", "10.0.0.1:6380", "host:6380"} {
		_, _, err := settingsOf([]string{"headgated", "-resp", address}, nil, io.Discard)
		require.ErrorContains(t, err, "other machines reach it", address)
		for _, more := range [][]string{{"-resp-open"}, {"-resp-password-file", "p"}, {"-tls-cert", "c", "-tls-key", "k", "-tls-client-ca", "a"}} {
			_, _, err := settingsOf(append([]string{"headgated", "-resp", address}, more...), nil, io.Discard)
			require.NoError(t, err)
		}
	}
	for _, address := range []string{"127.0.0.1:6380", "[::1]:6380", "localhost:6380", "unix:/run/headgated"} {
		_, _, err := settingsOf([]string{"headgated", "-resp", address}, nil, io.Discard)
		require.NoError(t, err, address)
	}
}

// TestVersion: -version prints one line and ends, whatever else is set or missing. A variable
// does not ask for it.
func TestVersion(t *testing.T) {
	var out, log bytes.Buffer
	require.Zero(t, run(context.Background(), []string{"headgated", "-version"}, nil, &out, &log))
	require.Regexp(t, `^headgated \S+\n$`, out.String())
	require.Empty(t, log.String())
	s, warnings, err := settingsOf([]string{"headgated", "-config", "c"}, []string{"HEADGATED_VERSION=v2.1"}, io.Discard)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.False(t, s.version)
}
