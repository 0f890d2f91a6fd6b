package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIrregularFiles: a file that is not regular is an error at the start, whichever flag
// names it. The server does not wait for the writer of a pipe.
func TestIrregularFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, limits, pem := filepath.Join(dir, "pipe"), filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "pem")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(limits, []byte(userLimits), 0o600))
	both := certificate(t, dir, "one")
	require.NoError(t, os.WriteFile(pem, append(both.cert, both.key...), 0o600))
	for _, args := range [][]string{
		{"-config", pipe}, {"-config", dir},
		{"-config", limits, "-tls-cert", pipe, "-tls-key", pem}, {"-config", limits, "-tls-cert", pem, "-tls-key", pipe},
		{"-config", limits, "-tls-cert", pem, "-tls-key", pem, "-tls-client-ca", pipe},
		{"-config", limits, "-redis", "127.0.0.1:1", "-redis-ca", pipe},
		{"-config", limits, "-redis", "127.0.0.1:1", "-redis-cert", pipe, "-redis-key", pem},
		{"-xds", "127.0.0.1:1", "-xds-ca", pipe}, {"-xds", "127.0.0.1:1", "-xds-cert", pipe, "-xds-key", pem},
		{"-config", limits, "-resp", "127.0.0.1:0", "-on-failure", "open", "-policies", pipe},
	} {
		status, out := make(chan int, 1), &bytes.Buffer{}
		go func() {
			status <- run(context.Background(), append([]string{"headgated", "-grpc", "127.0.0.1:0", "-http", "", "-metrics", ""}, args...), nil, io.Discard, out)
		}()
		select {
		case code := <-status:
			require.Equal(t, 2, code, args)
			require.Contains(t, out.String(), "not a regular file", args)
		case <-time.After(20 * time.Second):
			t.Fatalf("%q: the server waits for the writer of a pipe", args)
		}
	}
}

// TestIrregularReload: while the file is a pipe or has no end, the limits in use stay, and
// the next regular file is read.
func TestIrregularReload(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	refused := func(want string) {
		require.Eventually(t, func() bool {
			return strings.Contains(scrape(t, s), `headgated_config_refused{files="limits"} `+want)
		}, 20*time.Second, 5*time.Millisecond)
	}
	refused("0")
	for _, replace := range []func() error{
		func() error { return syscall.Mkfifo(s.file, 0o600) },
		func() error { return os.Symlink("/dev/full", s.file) },
	} {
		require.NoError(t, os.Remove(s.file))
		require.NoError(t, replace())
		refused("1")
		_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
		replaceFile(t, s.file, userLimits+"\n")
		refused("0")
	}
}

// TestEmptyFolder: a folder without files is an error at the start and changes nothing
// later. It would switch all limits off.
func TestEmptyFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "limits.yaml")
	options, _, err := settingsOf([]string{"headgated", "-config", folder, "-grpc", "127.0.0.1:0", "-http", "", "-metrics", ""}, nil, io.Discard)
	require.NoError(t, err)
	_, err = newServer(options, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, folder+": no file of limits")
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	v, err := newServer(options, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer v.close()
	require.NoError(t, os.Remove(file))
	v.watcher.poll()
	v.watcher.poll()
	require.True(t, v.watcher.now.Load().Has("d"), "the limits in use stay")
	require.ErrorContains(t, v.watcher.used.err, "no file of limits")
}
