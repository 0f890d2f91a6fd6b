// Package client sets go-redis clients up for a limiter. It sets the options of those that
// Headgate makes, and deadlines on the connections of one that the user made.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout is go-redis' default: the time in which a connection begins.
const dialTimeout = 5 * time.Second

// Lookup returns the addresses of a host.
type Lookup = func(ctx context.Context, host string) ([]net.IPAddr, error)

// Options sets the options of a client up for a limiter. go-redis' defaults
// suit a cache. They are four tries per command, five dials per try, and a pool that is
// waited on for longer than a caller would. The commands that begin a connection have
// the dial timeout: their caller leaves before, and the next one finds it made.
func Options(o *redis.Options, budget time.Duration) *redis.Options { return Named(o, budget, nil) }

// Named is Options of a client whose own Dialer dials the addresses that a Lookup returns.
// The simulator has one. Without it a user's own dialer gets the name.
func Named(o *redis.Options, budget time.Duration, lookup Lookup) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	if o.DialTimeout <= 0 {
		o.DialTimeout = dialTimeout
	}
	o.ReadTimeout = max(o.DialTimeout, budget) // a context is shorter, once a script was written
	o.WriteTimeout = budget
	o.PoolTimeout = budget / 2 // so that the reason is known before the budget ends
	o.ContextTimeoutEnabled = true
	o.MaxConcurrentDials = 4 // every timed-out connection is closed: don't answer a stall with a dial storm
	o.DisableIdentity = true
	// go-redis 9.23 has a pool of its own for pipelines. Connections would go unused there that
	// are counted for calls, and idle ones that no trial closes.
	//mutant:no-pipeline-pool
	o.PipelinePoolSize = -1
	// With another type of endpoint go-redis looks the address up when the client is made,
	// for up to two seconds, and prints where that fails.
	//mutant:no-lookup-of-address
	o.MaintNotificationsConfig = &maintnotifications.Config{
		Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone,
	}
	o.Dialer = quiet(newDialer(o, budget, lookup))
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

// View sends on the connections of the user's client and through its hooks, with
// deadlines of our own. The client's settings stay as they are: by go-redis'
// defaults a lost reply holds its connection for three seconds, whatever the
// context says. Conn is not embedded: a package that holds an atomic.Pointer to
// a View would compile a method of its own for each of Conn's 700.
type View struct {
	Conn *redis.Conn // has the hooks that the client had when it was made
	made time.Time   // when it was
}

// renewal is how long a view is used. A hook that is added to the client later is
// in the next one.
const renewal = time.Second

// Old reports whether the view is to be made anew. A nil one is.
func (v *View) Old() bool { return v == nil || time.Since(v.made) > renewal }

// NewView returns a view of a client. WithTimeout by itself would leave the hooks out,
// and Conn by itself would keep the client's timeouts.
func NewView(user *redis.Client, budget time.Duration) *View {
	bounded := user.WithTimeout(max(user.Options().DialTimeout, budget))
	o := bounded.Options() // of its own
	o.ContextTimeoutEnabled, o.WriteTimeout = true, budget
	conn := user.Conn() // takes no connection before its first command
	//mutant:connection-deadlines
	conn.AddHook(through{bounded})
	return &View{conn, time.Now()}
}

// through is the innermost hook of a view, which sends.
type through struct{ client *redis.Client }

func (t through) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t through) ProcessHook(redis.ProcessHook) redis.ProcessHook { return t.client.Process }

// ProcessPipelineHook sends a pipeline on a connection of the pool that single commands
// have. Since go-redis 9.23 a client's own pipelines have another pool.
func (t through) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		conn := t.client.Conn()
		defer conn.Close()
		//mutant:pipelines-by-the-pool
		p := conn.Pipeline()
		if err := p.BatchProcess(ctx, cmds...); err != nil {
			return err
		}
		_, err := p.Exec(ctx)
		return err
	}
}

// Made is a client with our Options. It is no *redis.Client, so that no View is made of
// it: it has deadlines of our own, and its connections report how they are.
type Made struct{ Client *redis.Client }

// Process sends a command.
func (m Made) Process(ctx context.Context, cmd redis.Cmder) error { return m.Client.Process(ctx, cmd) }

// Pipeline returns a pipeline.
func (m Made) Pipeline() redis.Pipeliner { return m.Client.Pipeline() }

// PoolStats returns the statistics of the connections.
func (m Made) PoolStats() *redis.PoolStats { return m.Client.PoolStats() }

// Options returns the options.
func (m Made) Options() *redis.Options { return m.Client.Options() }

// Trips returns the round trips that its connections measure.
func (m Made) Trips() *Trips { return TripsOf(m.Options()) }

// Once is a command that go-redis must not send again by itself: it re-sends a
// timed-out EVALSHA three times, and the caller sees no error.
type Once struct{ redis.StringCmd }

// NoRetry is how go-redis asks.
//
//mutant:no-retry
func (*Once) NoRetry() bool { return true }

// Pause is between two looks for what another goroutine is about to do, such as for a
// connection of a full pool.
const Pause = time.Millisecond

// Sleep sleeps before the look that follows so many others: a Pause, then twice as long each
// time, up to 16. Many processes that look each millisecond take a processor.
func Sleep(looks int) { time.Sleep(Pause << min(looks, 4)) }

// Process sends a command, and waits for a connection while the pool is full.
func Process(ctx context.Context, c interface {
	Process(context.Context, redis.Cmder) error
}, cmd redis.Cmder) error {
	for looks := 0; ; looks++ {
		err := c.Process(ctx, cmd)
		if !PoolFull(err) || ctx.Err() != nil {
			return err
		}
		Sleep(looks)
	}
}

// PoolFull reports whether the client had no connection for a command.
func PoolFull(err error) bool {
	return errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrPoolTimeout)
}

// Guarded returns a panic of the client, in a hook of the user's, as an error. A
// hook that ends the goroutine ends nothing else.
func Guarded(f func() error) (err error) {
	defer func() {
		//mutant:client-panics
		if p := recover(); p != nil {
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	return f()
}

// pooled is a client that reports its connections.
type pooled interface {
	PoolStats() *redis.PoolStats
	Options() *redis.Options
}

// Shows reports whether a client shows its settings, without which no connection beside its
// pool can be made.
func Shows(of any) bool {
	_, ok := of.(pooled)
	return ok
}

// DialTimeout returns the time in which a connection of a client begins, HELLO
// included.
func DialTimeout(of any) time.Duration {
	if c, ok := of.(pooled); ok {
		return c.Options().DialTimeout
	}
	return dialTimeout
}

// HalfFree reports whether half of a client's connections are in no use, as far as it
// reports them.
func HalfFree(of any) bool {
	c, ok := of.(pooled)
	if !ok {
		return true
	}
	return 2*inUse(c) <= Connections(of)
}

// inUse returns how many connections of a client are in use.
func inUse(c interface{ PoolStats() *redis.PoolStats }) int {
	stats := c.PoolStats()
	return int(stats.TotalConns) - int(stats.IdleConns)
}

// Connections returns how many connections a client may have, and 64 where it does not
// report that.
func Connections(of any) int {
	c, ok := of.(pooled)
	if !ok {
		return 64
	}
	o := c.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// Idle returns how many connections of a client's pool are idle, as far as it reports
// them.
func Idle(of any) int {
	if c, ok := of.(pooled); ok {
		return int(c.PoolStats().IdleConns)
	}
	return 0
}
