//go:build !linux

package sim

import (
	"os"
	"os/exec"
)

// Child is set in a process that Execute runs.
const Child = "HEADGATE_SIM_CHILD"

// Execute runs this program again with other arguments. Its scheduler does not follow the seed here, so that a trace may
// differ where things happen at one instant.
func Execute(_ uint64, args ...string) (out string, err error) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), Child+"=1", "GOMAXPROCS=1")
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// Begun is called first in a process that Execute runs.
func Begun() {}
