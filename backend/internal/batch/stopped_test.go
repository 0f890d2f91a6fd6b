package batch_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// stopper returns a function that stops this process for at least d, as an operating
// system without a processor for it does, and returns for how long. The process that
// wakes this one has begun before.
func stopper(t *testing.T, d time.Duration) (stop func() time.Duration) {
	t.Helper()
	waker := exec.Command("sh", "-c", fmt.Sprintf("read go; sleep %f; kill -CONT %d", d.Seconds(), os.Getpid()))
	begin, err := waker.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, waker.Start())
	return func() time.Duration {
		at := time.Now()
		_, err := begin.Write([]byte("\n"))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGSTOP))
		took := time.Since(at)
		require.NoError(t, waker.Wait())
		return took
	}
}

// TestVerdictOfAStoppedProcess: a reply is lost, and this process is stopped while it
// waits for another sign of the server. It finds no fault. Another try is for a process
// that was stopped between two looks, or whose reply another command has lost.
func TestVerdictOfAStoppedProcess(t *testing.T) {
	for try := 1; ; try++ {
		s, _, v := judged(t, redistest.LoseReply)
		stop := stopper(t, judgedBudget)
		require.Error(t, ask(s))
		stop()
		excused := v.excused()
		require.Positive(t, v.left(), "each round trip that has entered leaves")
		if try == 8 || excused && v.count(layer.ErrFailed) == 0 {
			v.excuses(t)
			return
		}
	}
}
