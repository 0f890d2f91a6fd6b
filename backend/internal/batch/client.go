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

// view sends on the user's connections and through the user's hooks, with
// deadlines of our own. The client's settings stay as they are: by go-redis'
// defaults a lost reply holds its connection for three seconds, whatever the
// context says.
type view struct {
	*redis.Conn               // has the hooks that the client had when it was made
	made        time.Duration // as now
}

// renewal is how long a view is used. A hook that is added to the client later is
// in the next one.
const renewal = time.Second

// newView returns a view of a client. WithTimeout alone would leave the hooks out,
// and Conn alone would keep the client's timeouts.
func newView(user *redis.Client, budget time.Duration) *view {
	bounded := user.WithTimeout(budget)
	bounded.Options().ContextTimeoutEnabled = true // an option of its own
	conn := user.Conn()                            // takes no connection before its first command
	conn.AddHook(through{bounded})                 // mutant: connection-deadlines
	return &view{conn, now()}
}

// through is the innermost hook of a view, which sends.
type through struct{ client *redis.Client }

func (t through) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t through) ProcessHook(redis.ProcessHook) redis.ProcessHook { return t.client.Process }

func (t through) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p := t.client.Pipeline()
		if err := p.BatchProcess(ctx, cmds...); err != nil {
			return err
		}
		_, err := p.Exec(ctx)
		return err
	}
}
