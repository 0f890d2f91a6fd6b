//go:build unix

package client

import (
	"errors"
	"io"
	"syscall"
)

// arrived reports whether something to read is in a socket, without reading it. An error
// says that the peer has closed it.
func arrived(raw syscall.RawConn) (came bool, err error) {
	failure := raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, e := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case n > 0:
			came = true
		case e == nil:
			err = io.EOF
		case !errors.Is(e, syscall.EAGAIN) && !errors.Is(e, syscall.EINTR):
			err = e
		}
		return true
	})
	return came, errors.Join(err, failure)
}
