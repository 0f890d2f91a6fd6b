package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoMoreFiles takes the files of a running server away. No listener ends for it, and each
// serves again, beside the connections that took the files.
func TestNoMoreFiles(t *testing.T) {
	t.Parallel()
	file, http, resp := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	cmd := program(t, http, "-config", file, "-grpc", freePort(t), "-resp", resp)
	open, err := os.ReadDir("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fd")
	require.NoError(t, err)
	few := unix.Rlimit{Cur: uint64(len(open)) + 10, Max: uint64(len(open)) + 10}
	require.NoError(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	for _, address := range []string{resp, http} {
		for range 20 {
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
		}
		require.Eventually(t, func() bool { return ready(http) && ping(resp) }, 20*time.Second, 50*time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, cmd.Wait(), "it has not ended by itself")
}

// ping reports whether the server of the Redis protocol answers at an address within a second.
func ping(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 7)
	_, _ = c.Write([]byte("PING\r\n"))
	_, err = c.Read(b)
	return err == nil && string(b) == "+PONG\r\n"
}
