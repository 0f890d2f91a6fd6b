package sim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// conn is a connection of a process to a node: the process's end. The node's end is what
// arrives at it, in order.
type conn struct {
	world *World
	proc  int
	addr  string // as dialled
	node  *node  // that answered
	life  int    // of the node's process, when it was dialled
	born  time.Time

	up, down direction // as the network's events use them

	mu struct {
		sync.Mutex
		number   int      // among the connections of the process to the address; 0 before it has sent
		in       []byte   // arrived, not read
		out      []string // written at this instant: one packet
		err      error    // what ends reading: io.EOF, or a reset
		werr     error    // what ends writing
		closed   bool     // by the process
		deadline time.Time
	}
	wake   chan struct{} // the reader looks again
	inbox  string        // at the node: not yet a whole command
	again  int           // how often something was sent again to a host that is gone
	asking bool          // at the node: ASKING stands before the next command
	gone   bool          // a middlebox has forgotten the flow: nothing arrives any more
}

// direction is one way of a connection.
type direction struct {
	packets int   // that were sent
	sent    int64 // when the last one was, over a thin link, as UnixNano
	last    int64 // when the last one arrives, as UnixNano: none overtakes another
}

func (c *conn) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Read returns what has arrived.
func (c *conn) Read(b []byte) (int, error) {
	over := false
	for {
		c.mu.Lock()
		n := copy(b, c.mu.in)
		c.mu.in = c.mu.in[n:]
		err, closed, deadline := c.mu.err, c.mu.closed, c.mu.deadline
		c.mu.Unlock()
		switch {
		case closed:
			return 0, net.ErrClosed
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
		if err := c.await(deadline); err != nil && !c.overslept(&over) {
			return 0, err
		}
	}
}

// overslept waits for a processor when a deadline has passed, once. What has arrived before the
// process has one is read.
func (c *conn) overslept(over *bool) bool {
	if c.world.host == nil || *over {
		return false
	}
	*over = true
	c.mu.Lock()
	order := c.mu.number
	c.mu.Unlock()
	c.world.await(op{proc: c.proc, to: c.addr, what: "deadline", order: order}, reading, false)
	return true
}

// await waits until the reader should look again, or for the deadline.
func (c *conn) await(deadline time.Time) error {
	if deadline.IsZero() {
		<-c.wake
		return nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-c.wake:
		return nil
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
}

// Write sends. It never blocks: no test fills a socket's buffer.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return 0, net.ErrClosed
	}
	if c.mu.werr != nil {
		return 0, c.mu.werr
	}
	c.mu.out = append(c.mu.out, string(b))
	if len(c.mu.out) == 1 {
		c.world.submit(op{proc: c.proc, to: c.addr, what: "send", order: c.mu.number, run: func() { c.world.send(c, c.written()) }})
	}
	return len(b), nil
}

// written takes what was written at this instant.
func (c *conn) written() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	packet := strings.Join(c.mu.out, "")
	c.mu.out = nil
	return packet
}

// label returns the connection's name in the trace. It has one when it first sends: what
// was dialled at one instant is alike until then.
func (c *conn) label(number func() int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.number == 0 {
		c.mu.number = number()
	}
	return fmt.Sprintf("p%d/%s#%d", c.proc, c.addr, c.mu.number)
}

// Close ends the connection at both ends.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return net.ErrClosed
	}
	c.mu.closed = true
	c.rouse()
	c.world.closed(c)
	return nil
}

// finish ends reading, and writing where the connection is reset.
func (c *conn) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err == nil {
		c.mu.err = err
	}
	if !errors.Is(err, io.EOF) {
		c.mu.werr = err
	}
	c.rouse()
}

func (c *conn) deliver(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed && c.mu.err == nil {
		c.mu.in = append(c.mu.in, b...)
		c.rouse()
	}
}

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return net.ErrClosed
	}
	c.mu.deadline = t
	c.rouse()
	return nil
}

func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) LocalAddr() net.Addr              { return address(fmt.Sprintf("10.1.0.%d:1", c.proc+1)) }
func (c *conn) RemoteAddr() net.Addr             { return address(c.addr) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// SyscallConn is what a pool asks before it uses an idle connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return socket{c}, nil }

// socket tells a pool whether the peer has ended the connection. It has no descriptor.
type socket struct{ c *conn }

func (s socket) Control(func(uintptr)) error { return errNoSocket }

func (s socket) Read(func(uintptr) bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.mu.err
}

func (s socket) Write(func(uintptr) bool) error { return errNoSocket }

var errNoSocket = errors.New("sim: no socket")
