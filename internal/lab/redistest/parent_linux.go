package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd when this process ends, since a panic,
// a timeout and SIGKILL run no cleanup. The kernel watches the thread that
// forked, not the process. Go ends a thread only when a goroutine exits while
// locked to it, so no test may do that.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
