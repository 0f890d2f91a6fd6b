package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is a connection of a client that Headgate makes. A go-redis pool asks an idle
// connection for its socket before it uses it, and closes it on an error. There conn
// looks for what the pool can't see. Only the pool's user has it then.
//
//   - A peer that has closed its end of TLS. The pool sees it on plain TCP, where it
//     looks into the socket; a *tls.Conn shows it none.
//   - A connection that was idle for long. Something on the way may have forgotten it:
//     then no error comes, and no answer.
//   - A connection to a server that has become a replica. The name leads to the new
//     primary, but connections that were dialled before lead to the old one.
type conn struct {
	net.Conn
	racer         *racer
	network, addr string
	made          int64        // when it was dialled, as Now
	wrote         atomic.Int64 // when something was last written, as Now
	writes        atomic.Int64 // for how long a write may take, in ns; 0: for ever
	answered      atomic.Bool  // something was read
	closed        atomic.Bool
	ended         error // of Read, before anything was read; go-redis reads once more
}

func newConn(c net.Conn, r *racer, network, addr string) *conn {
	n := &conn{Conn: c, racer: r, network: network, addr: addr, made: int64(Now())}
	n.wrote.Store(n.made)
	return n
}

// Close closes the connection. The pool closes those that the client's end has closed before.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.racer.mu.Lock()
	delete(c.racer.mu.conns, c)
	c.racer.mu.Unlock()
	return c.Conn.Close()
}

// Write writes, with the time from now on that SetWriteDeadline was given. A process that is late
// between the two would else write nothing, and its command is perhaps counted.
func (c *conn) Write(b []byte) (int, error) {
	c.wrote.Store(int64(Now()))
	//mutant:late-write-has-its-time
	if d := c.writes.Load(); d > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Duration(d)))
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline notes for how long the next writes may take.
func (c *conn) SetWriteDeadline(by time.Time) error {
	if by.IsZero() {
		c.writes.Store(0)
		return c.Conn.SetWriteDeadline(by)
	}
	c.writes.Store(max(1, int64(time.Until(by))))
	return nil
}

func (c *conn) Read(b []byte) (int, error) {
	//mutant:first-error-stays
	if c.ended != nil {
		return 0, c.ended
	}
	n, err := c.Conn.Read(b)
	if n == 0 && isTimeout(err) && c.hasArrived() {
		n, err = c.Conn.Read(b)
	}
	switch {
	case n > 0:
		if bytes.HasPrefix(b[:n], readOnly) {
			c.racer.demoted.Store(c.wrote.Load())
		}
		c.measure()
		c.answered.Store(true)
	case err != nil && !c.answered.Load():
		c.ended = err
		//mutant:unanswered-closed
		_ = c.Close() // go-redis 9.22 leaves a connection open whose handshake has no answer
	}
	return n, err
}

// unread is how long a read may take of what is there already.
const unread = time.Millisecond

// hasArrived reports whether something to read is in the socket, and moves the deadline for
// it. If this process had no processor, a deadline passes before a reply is read that came
// in time.
func (c *conn) hasArrived() bool {
	s, ok := socket(c.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil || c.Conn.SetReadDeadline(time.Now().Add(unread)) != nil {
		return false
	}
	came, err := arrived(raw)
	//mutant:arrived-reply-read
	return came && err == nil
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// SetReadDeadline sets the deadline of the next reads. The first reply is that of HELLO, which
// go-redis awaits for the dial timeout. If it is lost, the connection would fill a place of
// the pool for as long.
func (c *conn) SetReadDeadline(by time.Time) error {
	hello := time.Now().Add(max(handshake, 3*c.racer.budget))
	//mutant:hello-soon-given-up
	if !c.answered.Load() && (by.IsZero() || by.After(hello)) {
		by = hello
	}
	return c.Conn.SetReadDeadline(by)
}

// readOnly begins a replica's reply to a script that writes.
var readOnly = []byte("-READONLY")

// silence is how long a connection may have been idle without a trial. A variable for the
// tests only.
var silence = 10 * time.Second

// handshake is how long the reply of HELLO is awaited; three budgets if those are longer. A
// variable for the tests only.
var handshake = time.Second

var (
	errClosed = errors.New("the peer has closed the connection")
	errSilent = errors.New("no answer after a silence")
	errOlder  = errors.New("dialled before the server became a replica")
	errNone   = errors.New("no socket")
)

// SyscallConn returns the socket, or an error if the connection should not be used.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	//mutant:replica-left
	if c.made < c.racer.demoted.Load() {
		return nil, errOlder
	}
	s, ok := socket(c.Conn)
	if !ok {
		return blind{}, nil
	}
	_, over := c.Conn.(below)
	raw, err := s.SyscallConn()
	//mutant:tls-drained
	if err == nil && over {
		err = c.drain(raw)
	}
	if err == nil && c.idle() >= silence && !c.racer.closed.Load() {
		err = c.try()
	}
	return raw, err
}

// below is a connection over another one, as TLS is.
type below interface{ NetConn() net.Conn }

// blind is the socket of a connection that has none: nothing is seen on it.
type blind struct{}

func (blind) Control(func(uintptr)) error    { return errNone }
func (blind) Read(func(uintptr) bool) error  { return nil }
func (blind) Write(func(uintptr) bool) error { return errNone }

// drain reads what came over TLS while the connection was idle. That is its end, or a
// ticket for another session, which is none of the client's business. A read may end
// before it has begun, where the machine is busy.
func (c *conn) drain(raw syscall.RawConn) error {
	for range 10 {
		if came, err := arrived(raw); err != nil || !came {
			return err
		}
		var b [1]byte
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Conn.Read(b[:])
		_ = c.SetReadDeadline(time.Time{})
		if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
			return errClosed
		}
	}
	return errClosed
}

func (c *conn) idle() time.Duration { return Now() - time.Duration(c.wrote.Load()) }

// try sends a PING, and dials another connection beside it when the answer is late.
// Whichever answers first is used. A PING has as long again as the dial took. Where two
// round trips take longer than the budget, no call could wait for that: there the
// system's keep-alive has to do.
func (c *conn) try() error {
	r := c.racer
	//mutant:far-not-tried
	if 2*r.trip() >= r.budget {
		return nil
	}
	//mutant:one-silent-trial
	if r.sawSilence() {
		return errSilent
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.budget)
	defer cancel()
	answered, dialled := make(chan error, 1), make(chan attempt)
	go func() { answered <- c.ping() }()
	go c.beside(ctx, dialled)
	select {
	case err := <-answered:
		return err
	case a := <-dialled:
		select {
		case err := <-answered:
			_ = a.conn.Close()
			return err
		case <-time.After(a.took):
		}
		r.keep(a.conn)
	case <-ctx.Done():
	}
	return errSilent
}

// trip returns the shortest round trip, 0 if it is unknown. One for which the budget has no
// time counts as unknown. Over that link no call is answered, so a trial costs none. If the
// link is shorter by now, the trial shows whether the connection still leads to the server.
func (r *racer) trip() time.Duration {
	trip := r.trips.Shortest()
	//mutant:too-long-is-unknown
	if trip >= r.budget-r.budget/20 {
		return 0
	}
	return trip
}

// Patience returns how long an idle connection may take to answer before another one is dialled
// beside it. It is half of the budget, less over a long link. The rest has to do for a dial with
// TLS, HELLO and the call. On a host without a free processor an answer is late as a rule. A dial
// beside each one would keep the processors from the server.
func Patience(budget, trip time.Duration) time.Duration {
	//mutant:idle-connection-has-time
	return max(3*trip/2, min(budget/2, budget-7*trip))
}

// beside dials, unless the trial ends before.
func (c *conn) beside(ctx context.Context, dialled chan<- attempt) {
	select {
	case <-time.After(Patience(c.racer.budget, c.racer.trip())):
	case <-ctx.Done():
		return
	}
	begin := time.Now()
	n, err := c.racer.dial(ctx, c.network, c.addr)
	if err != nil {
		return
	}
	select {
	case dialled <- attempt{conn: n, took: time.Since(begin)}:
	case <-ctx.Done():
		_ = n.Close()
	}
}

// sawSilence reports whether another connection did not answer just now. What has
// forgotten one has forgotten the others, and each trial takes time of a call.
func (r *racer) sawSilence() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.mu.kept) <= r.budget
}

// keep keeps the connection that was dialled beside one that did not answer. A pool drops
// two more, and then dials.
func (r *racer) keep(beside net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		_ = beside.Close()
		return
	}
	if r.mu.spare != nil {
		_ = r.mu.spare.Close()
	}
	r.mu.spare, r.mu.kept = beside, time.Now()
}

// ping is a round trip below the pool. Any reply shows that the peer lives: before HELLO
// it is an error where a password is wanted.
func (c *conn) ping() error {
	_ = c.SetDeadline(time.Now().Add(c.racer.budget))
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	//mutant:tried-before-handshake
	defer c.answered.Store(c.answered.Load()) // a connection that was dialled ahead has its handshake before it
	if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	var b [512]byte
	for n := 0; n < len(b); {
		m, err := c.Read(b[n:])
		if n += m; bytes.HasSuffix(b[:n], []byte("\r\n")) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errSilent
}
