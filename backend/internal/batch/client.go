package batch

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ClientOptions sets the options of a client up for a limiter. go-redis' defaults
// suit a cache: four tries per command, five dials per try, and a pool that is
// waited on for longer than a caller would.
func ClientOptions(o *redis.Options, budget time.Duration) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = min(250*time.Millisecond, max(budget, 50*time.Millisecond))
	o.ReadTimeout = budget
	o.WriteTimeout = budget
	o.PoolTimeout = budget / 2 // so that the reason is told before the budget ends
	o.ContextTimeoutEnabled = true
	o.MinIdleConns = 2
	o.MaxConcurrentDials = 4 // every timed-out connection is closed: don't answer a stall with a dial storm
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Dialer == nil {
		o.Dialer = redis.NewDialer(o)
	}
	o.Dialer = quiet(o.Dialer)
	return o
}

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
			nowhere, _ := net.Pipe()
			return &undialled{nowhere, &dialError{err}}, nil
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
type undialled struct {
	net.Conn
	err *dialError
}

func (u *undialled) Read([]byte) (int, error)              { return 0, u.err }
func (u *undialled) Write([]byte) (int, error)             { return 0, u.err }
func (u *undialled) SyscallConn() (syscall.RawConn, error) { return nil, u.err }
