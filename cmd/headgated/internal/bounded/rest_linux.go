package bounded

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rest takes the connections that the system has accepted for a listener, and the listener has
// not. Its close would reset them, with what their clients have sent.
func rest(l net.Listener) (conns []net.Conn) {
	s, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			accepted, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil { // EAGAIN: there is none
				return
			}
			f := os.NewFile(uintptr(accepted), "")
			if c, err := net.FileConn(f); err == nil {
				conns = append(conns, c)
			}
			_ = f.Close()
		}
	})
	return conns
}
