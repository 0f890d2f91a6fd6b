//go:build unix

package main

import (
	"math"
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

// openFiles returns how many files the process may open. Go has raised the soft limit.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt64
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
