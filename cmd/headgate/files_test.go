package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIrregularFiles: a pipe is misuse, whichever flag names it. The command does not wait
// for its writer.
func TestIrregularFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, args := range [][]string{{"-ca", pipe}, {"-cert", pipe, "-key", pipe}, {"-policies", pipe}} {
		require.Contains(t, exec(t, 2, append([]string{"peek", "k", "-redis", "rediss://127.0.0.1:1"}, args...)...), "not a regular file", args)
	}
}
