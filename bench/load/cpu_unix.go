//go:build unix

package load

import (
	"syscall"
	"time"
)

// CPU is the processor time that this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails for wrong arguments only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
