//go:build linux && !386 && !s390x

package client

import (
	"syscall"
	"time"
	"unsafe"
)

// onTheWay returns how long the last round trip on a socket took, from when the kernel sent the
// request to when the reply came. It returns took if the kernel does not report that. It is right
// where a connection has one request at a time.
func onTheWay(raw syscall.RawConn, took time.Duration) time.Duration {
	var info syscall.TCPInfo
	size, failed := uint32(unsafe.Sizeof(info)), syscall.Errno(0)
	err := raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil || failed != 0 || info.Last_data_sent < info.Last_data_recv {
		return took
	}
	return time.Duration(info.Last_data_sent-info.Last_data_recv) * time.Millisecond
}
