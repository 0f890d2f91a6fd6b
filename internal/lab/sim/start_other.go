//go:build !linux

package sim

import (
	"os"
	"os/exec"
)

// Child is set in a process that Execute runs.
const Child = "HEADGATE_SIM_CHILD"

// Execute runs a process. Its scheduler does not follow the seed here, so that a trace may
// differ where things happen at one instant.
func Execute(cmd *exec.Cmd, _ uint64) error {
	cmd.Env = append(os.Environ(), Child+"=1", "GOMAXPROCS=1")
	return cmd.Run()
}

// AwaitMonitor does nothing here.
func AwaitMonitor() {}
