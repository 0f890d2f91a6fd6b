package wire

import (
	"context"
	"net"
	"syscall"
	"time"
)

// dialer is a redis.Options.Dialer.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// quiet returns a dialer whose dials never fail: where dial does, quiet returns
// a connection on which every operation has the dial's error. A go-redis pool
// prints each dial that fails with its global logger, which is the
// application's and not ours to set. A connection that fails its handshake it
// does not print. The caller gets the same error either way.
func quiet(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return &undialled{&dialError{err}}, nil
		}
		return c, nil
	}
}

// dialError is the error of a dial. go-redis unwraps the error of a handshake
// once: without this type it would drop the address.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }

func (e *dialError) Unwrap() error { return e.err }

// undialled is the connection of a dial that failed. It is a syscall.Conn, so
// that a pool that looks whether an idle connection still lives drops it.
type undialled struct{ err *dialError }

func (u *undialled) Read([]byte) (int, error)              { return 0, u.err }
func (u *undialled) Write([]byte) (int, error)             { return 0, u.err }
func (u *undialled) SyscallConn() (syscall.RawConn, error) { return nil, u.err }
func (u *undialled) Close() error                          { return nil }
func (u *undialled) LocalAddr() net.Addr                   { return &net.TCPAddr{} }
func (u *undialled) RemoteAddr() net.Addr                  { return &net.TCPAddr{} }
func (u *undialled) SetDeadline(time.Time) error           { return nil }
func (u *undialled) SetReadDeadline(time.Time) error       { return nil }
func (u *undialled) SetWriteDeadline(time.Time) error      { return nil }
