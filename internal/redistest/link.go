package redistest

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one client's connection through a Proxy, with the one to the server.
type link struct {
	p              *Proxy
	client, server *net.TCPConn
	due            chan Fault // one per command that awaits its reply, in order
	done           chan struct{}
	once           sync.Once
	forgotten      atomic.Bool // see Proxy.Forget
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{
		p: p, client: client, server: server,
		// Room for any pipeline of our tests. When it is full the client waits.
		due:  make(chan Fault, 4096),
		done: make(chan struct{}),
	}
}

func (l *link) run() {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		l.copy(l.server, l.client, l.down)
	}()
	l.copy(l.client, l.server, l.up)
	wg.Wait()
}

// drop ends both directions. It never waits, and may run more than once.
func (l *link) drop() {
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// copy gives each value from one side to pass, until that returns false. more
// is true when the next value has begun to arrive, follows when the value came
// in one read with the one before.
func (l *link) copy(from, to net.Conn, pass func(out *bufio.Writer, value []byte, follows, more bool) bool) {
	defer l.drop()
	in, out := bufio.NewReader(from), bufio.NewWriter(to)
	var buf []byte
	for follows := false; ; {
		value, err := readValue(in, buf[:0])
		if err != nil {
			return
		}
		buf = value
		more := in.Buffered() > 0
		if !l.forgotten.Load() && !pass(out, value, follows, more) {
			return
		}
		follows = more
	}
}

// up passes a command. It queues the fault of the reply before it sends the
// command, so that down always finds it.
func (l *link) up(out *bufio.Writer, command []byte, follows, more bool) bool {
	f := l.p.meet(verb(command), follows)
	select {
	case l.due <- f:
		return send(out, command, more)
	case <-l.done:
		return false
	}
}

// down passes a reply. It applies a fault only when it holds the reply, which
// proves that the server has executed the command.
func (l *link) down(out *bufio.Writer, reply []byte, _, more bool) bool {
	f := Pass
	if reply[0] != '>' { // a push answers no command
		select {
		case f = <-l.due:
		default: // a reply without a command: "max number of clients reached"
		}
	}
	reply = l.p.rewritten(reply)
	if f.reply != nil {
		_ = out.Flush() // the fault must not touch the replies before it
		if !f.reply(l, out, reply) {
			return false
		}
	}
	return l.forgotten.Load() || send(out, reply, more)
}

func (l *link) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// send keeps a pipeline together: it flushes after the last value that has
// arrived.
func send(w *bufio.Writer, b []byte, more bool) bool {
	if _, err := w.Write(b); err != nil {
		return false
	}
	return more || w.Flush() == nil
}
