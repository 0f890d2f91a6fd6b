package redistest

import (
	"os/exec"
	"syscall"
)

// spawn starts cmd such that the kernel kills it when this process is gone,
// which holds after a panic, a timeout or SIGKILL too, where no cleanup runs.
// The kernel watches the thread that forked, not the process; Go ends a thread
// only when a goroutine exits while locked to it, so don't do that in a test.
func spawn(cmd *exec.Cmd) (release func(), err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return func() {}, cmd.Start()
}
