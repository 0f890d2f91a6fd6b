//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// freeze returns once the process stands still: the signal alone may leave it a
// few more instructions on the other core, enough to answer one call.
func freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(poll / 10) {
		// The state follows the name, which stands in brackets.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil || bytes.Contains(stat, []byte(") T ")) {
			return nil // no /proc, no way to see it: the signal has to do
		}
	}
	return fmt.Errorf("redistest: process %d does not stop", p.Pid)
}

func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
