//go:build !linux

package redistest

import (
	"os/exec"
	"strconv"
)

// spawn starts cmd and a watchdog beside it, for the kernel offers nothing: the
// watchdog reads from a pipe that only we hold open, so its reading ends when
// this process does, however that happens. release ends the watchdog, lest it
// kill whoever has the process id later.
func spawn(cmd *exec.Cmd) (release func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	dog := exec.Command("sh", "-c", `cat >/dev/null; kill -9 "$1"`, "sh", strconv.Itoa(cmd.Process.Pid))
	leash, err := dog.StdinPipe()
	if err == nil {
		err = dog.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, err
	}
	return func() {
		_ = dog.Process.Kill()
		_ = dog.Wait()
		_ = leash.Close()
	}, nil
}
