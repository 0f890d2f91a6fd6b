package redistest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pipelined is the number of commands that may await replies on a connection:
// more than any test sends. When it is reached the client waits.
const pipelined = 4096

// link is one client's connection through a Proxy, with the one to the server.
type link struct {
	p              *Proxy
	client, server *net.TCPConn
	due            chan Fault // one per command that awaits its reply, in order
	done           chan struct{}
	once           sync.Once
	forgotten      atomic.Bool // see Proxy.Forget
}

// run copies in both directions and returns when both have ended. Either end
// drops the link, since a connection ends as a whole.
func (l *link) run() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.copy(l.server, l.client, l.down)
	}()
	l.copy(l.client, l.server, l.up)
	<-ended
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
	select {
	case <-time.After(d):
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

// readValue appends one whole RESP value, version 2 or 3, request or reply, to
// buf. It keeps the bytes as they are. A proxy that counted reads would take a
// pipeline for one command, or half a command for one.
func readValue(r *bufio.Reader, buf []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	buf = append(buf, line...)
	if strings.IndexByte("$!=*~>%|", line[0]) < 0 {
		return buf, nil // all other types are one line, and so is an inline command
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n < 0 { // -1 is RESP2's null
		return buf, err
	}
	switch line[0] {
	case '$', '!', '=':
		buf = append(buf, make([]byte, n+2)...)
		_, err = io.ReadFull(r, buf[len(buf)-n-2:])
		return buf, err
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1 // attributes precede the value that they describe
	}
	for ; n > 0 && err == nil; n-- {
		buf, err = readValue(r, buf)
	}
	return buf, err
}

// verb is the name of the command in a request, in capitals.
func verb(request []byte) string {
	if request[0] == '*' {
		parts := bytes.SplitN(request, []byte("\r\n"), 4) // *3 $7 EVALSHA …
		if len(parts) < 4 {
			return ""
		}
		return strings.ToUpper(string(parts[2]))
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(request)), " ")
	return strings.ToUpper(word)
}
