//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func reusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("-reuse-port: not on this system")
}

// openFiles returns how many files the process may open: there is no known bound.
func openFiles() uint64 { return math.MaxInt64 }
