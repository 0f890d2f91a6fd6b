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
	due            chan Fault // one for each command whose reply is awaited, in order
	done           chan struct{}
	once           sync.Once
	forgotten      atomic.Bool // see Proxy.Forget
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{
		p: p, client: client, server: server,
		// Room for any pipeline of our tests; when full, the client waits.
		due:  make(chan Fault, 4096),
		done: make(chan struct{}),
	}
}

func (l *link) run() {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		l.down()
	}()
	l.up()
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

// up carries commands. It notes what is to happen to the reply before it sends
// the command, so that down always finds the note.
func (l *link) up() {
	defer l.drop()
	in, out := newFrames(l.client), bufio.NewWriter(l.server)
	for follows := false; ; follows = in.more() {
		frame, err := in.next()
		if err != nil {
			return
		}
		if l.forgotten.Load() {
			continue
		}
		f := l.p.meet(verb(frame), follows)
		if !l.passes() {
			return
		}
		select {
		case l.due <- f:
		case <-l.done:
			return
		}
		if !send(out, frame, in.more()) {
			return
		}
	}
}

// down carries replies. By the time it applies a fault it holds the reply, and
// so knows that the server has executed the command.
func (l *link) down() {
	defer l.drop()
	in, out := newFrames(l.server), bufio.NewWriter(l.client)
	for {
		frame, err := in.next()
		if err != nil {
			return
		}
		if l.forgotten.Load() {
			continue
		}
		f := Pass
		if frame[0] != '>' { // a push answers no command
			select {
			case f = <-l.due:
			default: // nobody asked: "max number of clients reached"
			}
		}
		if !l.passes() || !l.reply(out, l.p.rewritten(frame), f, in.more()) {
			return
		}
	}
}

// reply applies f; false ends the connection.
func (l *link) reply(out *bufio.Writer, frame []byte, f Fault, more bool) bool {
	if f.kind != pass {
		_ = out.Flush() // the replies before it are none of the fault's business
	}
	switch f.kind {
	case swallow:
		l.wait(f.d)
		return false
	case reset:
		_ = l.client.SetLinger(0)
		return false
	case lose:
		l.forgotten.Store(true) // what follows a lost reply can't come before it
		return true
	case half:
		send(out, frame[:len(frame)/2], false)
		// To close with requests unread would reset the connection, and the
		// half could be lost: up reads on until the client closes.
		_ = l.client.CloseWrite()
		<-l.done
		return false
	case delay:
		if !l.wait(f.d) {
			return false
		}
	}
	return send(out, frame, more)
}

// passes holds its caller while the proxy is frozen; false: the link is gone.
func (l *link) passes() bool {
	for {
		thaw := l.p.gate()
		if thaw == nil {
			return true
		}
		select {
		case <-thaw: // and look again, it may be frozen anew
		case <-l.done:
			return false
		}
	}
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

// send keeps a pipeline together: it writes when nothing more is at hand.
func send(w *bufio.Writer, b []byte, more bool) bool {
	if _, err := w.Write(b); err != nil {
		return false
	}
	return more || w.Flush() == nil
}
