//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func reusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("-reuse-port: not on this system")
}
