//go:build unix

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets a new process listen while the old one drains.
func reusePort(_, _ string, c syscall.RawConn) (err error) {
	if wrong := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); wrong != nil {
		return wrong
	}
	return err
}
