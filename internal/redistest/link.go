package redistest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// pipelined is the number of commands that may await replies on a connection:
// more than any test sends. When it is reached the client waits.
const pipelined = 4096

// link is one client's connection through a Proxy, with the one to the server.
type link struct {
	p              *Proxy
	client, server *net.TCPConn
	due            chan Fault // one per command that awaits its reply, in order
	done           <-chan struct{}
	drop           func()      // ends both directions
	born           int64       // Proxy.forgets at the beginning
	lost           atomic.Bool // see LoseReply
}

func (l *link) forgotten() bool { return l.lost.Load() || l.born < l.p.forgets.Load() }

// copy gives each value from one side to pass, until that returns false. more
// is true when the next value has begun to arrive, follows when the value came
// in one read with the one before.
func (l *link) copy(from, to net.Conn, pass func(out *bufio.Writer, value []byte, follows, more bool) bool) {
	defer l.p.wg.Done()
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
		if !l.forgotten() && !pass(out, value, follows, more) {
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
	if rewrite := l.p.rewrite.Load(); rewrite != nil {
		reply = (*rewrite)(reply)
	}
	if f.reply != nil {
		_ = out.Flush() // the fault must not touch the replies before it
		if !f.reply(l, out, reply) {
			return false
		}
	}
	return l.forgotten() || send(out, reply, more)
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
	words := strings.Fields(string(request[:min(64, len(request))]))
	if request[0] == '*' { // *3 $7 EVALSHA …
		words = words[min(2, len(words)):]
	}
	return strings.ToUpper(strings.Join(words[:min(1, len(words))], ""))
}
