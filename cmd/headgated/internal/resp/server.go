// Package resp serves limiters by the Redis protocol, so that any Redis client can ask
// them. There is CL.THROTTLE as redis-cell answers it, and the HG commands by the name of
// a plan of a policy file.
//
//	CL.THROTTLE key max_burst count period [quantity]
//	HG.TAKE plan key [cost …]
//	HG.PEEK plan key [cost …]
//	HG.RESERVE plan key lease-milliseconds [cost …]
//	HG.COMMIT plan token [actual …]
//	HG.CANCEL plan token
//	HG.RESET plan key
//
// CL.THROTTLE answers five integers. They are 1 if the call is limited, the limit, and
// what is left. Then come the seconds until the call passes (-1 if it passes now, or
// never will), and those until nothing is counted. TAKE and PEEK answer 1 if the call is
// allowed, the name of the policy that binds, its limit, what is left. Then come the
// milliseconds until the call passes, those until nothing is counted, and the source of
// the decision. RESERVE answers the same and the token of the reservation.
//
// A plan without limits passes each call: the source is unlimited, and the numbers are -1. One
// that is blocked passes none: the source is blocked, the limit 0, and the wait -1 ms, for never.
// No store is asked. The token of their RESERVE is empty, and settles nothing.
package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
)

// Bounds of a connection.
const (
	maxArgs     = 64
	idleTimeout = 10 * time.Minute
	helloWithin = 10 * time.Second // a handshake, and the first bytes after it
	readTimeout = 10 * time.Second // of a command that has begun
	lingerFor   = time.Second      // until the client has seen that no more is answered
	buffer      = 4 << 10
	maxName     = 256      // bytes of a connection's name
	maxStranger = 16 << 10 // bytes of a command before AUTH, as in Redis
)

// Server serves connections. Make one with New.
type Server struct {
	opts     Options
	throttle *throttle

	mu struct {
		sync.Mutex
		conns map[net.Conn]struct{}
		ended bool
	}
	running  sync.WaitGroup
	draining atomic.Bool  // each answer is the last of its connection
	ids      atomic.Int64 // of connections
	ctx      context.Context
	cancel   context.CancelFunc
}

// New returns a server.
func New(opts Options) *Server {
	s := &Server{opts: opts, throttle: newThrottle(opts)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.conns = map[net.Conn]struct{}{}
	return s
}

// Serve accepts connections until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if s.opts.TLS != nil {
			c = tls.Server(c, s.opts.TLS)
		}
		if !s.add(c) {
			_ = c.Close()
			continue
		}
		go func() {
			defer s.remove(c)
			s.serve(c)
		}()
	}
}

// Drain makes each further answer the last of its connection. A client that pipelines loses
// what it has sent after that: it is not read.
func (s *Server) Drain() { s.draining.Store(true) }

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		return false
	}
	s.mu.conns[c] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) remove(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// Shutdown ends idle connections, and waits for the commands that were read until ctx
// ends. The listener is the caller's to close.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.mu.ended = true
	for c := range s.mu.conns {
		_ = c.SetReadDeadline(time.Now()) // what was read is answered
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		_ = c.Close()
	}
}

// serve answers the commands of a connection in order. Replies are gathered while the
// client's commands are buffered, and leave together.
func (s *Server) serve(conn net.Conn) {
	in, out := bufio.NewReaderSize(conn, buffer), bufio.NewWriterSize(conn, buffer)
	defer func() { _ = out.Flush() }()
	c := s.newSession(conn, out)
	if !s.handshake(conn) {
		return
	}
	for wait := helloWithin; ; wait = idleTimeout {
		if in.Buffered() == 0 && (s.deadline(conn, wait) != nil || out.Flush() != nil) {
			return
		}
		if _, err := in.Peek(1); err != nil || s.deadline(conn, readTimeout) != nil {
			return
		}
		if !c.next(in) {
			return
		}
		//mutant:last-answer-closes
		if s.draining.Load() && in.Buffered() == 0 {
			_ = out.Flush()
			linger(conn)
			return
		}
	}
}

// next reads and answers one command. It returns false if the connection ends.
func (c *session) next(in *bufio.Reader) bool {
	long := bounded.Long{Slots: c.server.opts.Slots}
	defer long.End()
	c.conn.Expect()
	args, err := readCommand(in, c.maxBytes(), &long)
	c.conn.Arrived()
	var wrong protocolError
	if errors.As(err, &wrong) {
		c.error("ERR Protocol error: " + string(wrong))
	}
	if err != nil {
		return false
	}
	_ = c.raw.SetWriteDeadline(time.Now().Add(readTimeout))
	return len(args) == 0 || c.do(args)
}

// handshake is that of TLS. It has a deadline of its own: later ones follow its bytes.
func (s *Server) handshake(conn net.Conn) bool {
	t, secure := conn.(*tls.Conn)
	if !secure {
		return true
	}
	//mutant:handshake-ends
	ctx, cancel := context.WithTimeout(s.ctx, helloWithin)
	defer cancel()
	return t.HandshakeContext(ctx) == nil
}

// linger ends what is sent, and waits for the client to close. What it sends meanwhile is thrown
// away. Unread bytes make the system reset the connection, and an answer that the client has not
// read is lost then.
func linger(conn net.Conn) {
	if w, ok := conn.(interface{ CloseWrite() error }); ok && w.CloseWrite() == nil {
		_ = conn.SetReadDeadline(time.Now().Add(lingerFor))
		_, _ = io.Copy(io.Discard, conn)
	}
}

// deadline sets the time for the next bytes, unless the server ends.
func (s *Server) deadline(c net.Conn, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		return net.ErrClosed
	}
	return c.SetReadDeadline(time.Now().Add(d))
}
