package postgrestest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end cmd when this process ends, since a panic, a timeout and
// SIGKILL run no cleanup. SIGQUIT is PostgreSQL's immediate shutdown: its other processes end
// too, and no shared memory is left.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
}
