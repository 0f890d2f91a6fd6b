//go:build unix

package file

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRead: a regular file is read, also by a link. All else is refused at once.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("text"), []byte("limits"), 0o600))
	require.NoError(t, os.Symlink("text", at("link")))
	for _, name := range []string{"text", "link"} {
		data, err := Read(at(name))
		require.NoError(t, err)
		require.Equal(t, "limits", string(data))
	}
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", at("endless")))
	require.NoError(t, os.Truncate(at("text"), MaxBytes+1))
	for name, want := range map[string]string{
		"pipe": "not a regular file", "endless": "not a regular file", ".": "not a regular file",
		"text": "more than 67108864 bytes", "none": "no such file",
	} {
		begin := time.Now()
		_, err := Read(at(name))
		require.ErrorContains(t, err, want, name)
		require.ErrorContains(t, err, filepath.Clean(at(name)), "which file")
		require.Less(t, time.Since(begin), 10*time.Second)
		_, err = KeyPair(at(name), at(name))
		require.ErrorContains(t, err, want, name)
		_, err = Authorities(at(name))
		require.ErrorContains(t, err, want, name)
	}
}
