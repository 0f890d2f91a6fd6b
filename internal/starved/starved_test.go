package starved_test

import (
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/starved"
	"github.com/stretchr/testify/require"
)

// TestHost: a host has no free processor if four times as many processes want one.
func TestHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports it")
	}
	for range 4 * runtime.NumCPU() {
		c := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	for begin := time.Now(); !starved.Host(); {
		require.Less(t, time.Since(begin), 10*time.Second)
	}
}
