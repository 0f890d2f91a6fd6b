package redistest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between clients and a server and breaks round trips of EVALSHA.
// Other commands pass. It matches replies to commands, also in a pipeline and
// under RESP3, as long as each command has one reply: it is not for pub/sub.
// Its methods are safe for concurrent use.
type Proxy struct {
	target    string
	ln        net.Listener
	wg        sync.WaitGroup
	seen, hit atomic.Int64
	forgets   atomic.Int64 // calls of Forget
	rewrite   atomic.Pointer[func([]byte) []byte]
	mu        struct {
		sync.Mutex
		fault Fault
		turn  int // EVALSHA since Set
	}
}

// NewProxy listens on a port of 127.0.0.1 and connects each client to target.
// It begins with Pass. When the test ends it closes everything and waits for
// its goroutines.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &Proxy{target: target, ln: ln}
	ctx, end := context.WithCancel(context.Background())
	p.wg.Add(1)
	go p.accept(ctx)
	t.Cleanup(func() {
		_ = ln.Close()
		end()
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set replaces the fault, for requests that arrive from now on. A reply that is
// being held stays held.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.fault, p.mu.turn = f, 0
}

// Forget silently drops whatever is sent from now on over the present
// connections, both ways, and leaves them open. A load balancer that has lost
// its flow table does so. New connections pass.
func (p *Proxy) Forget() { p.forgets.Add(1) }

// Rewrite lets f change each reply on its way to the client: one whole RESP
// value at a time.
func (p *Proxy) Rewrite(f func([]byte) []byte) { p.rewrite.Store(&f) }

// Seen is the number of EVALSHA that have arrived, with a fault or without.
func (p *Proxy) Seen() int { return int(p.seen.Load()) }

// Hit is the number of EVALSHA with a fault. A hit counts when the request
// arrives, before the reply shows the fault.
func (p *Proxy) Hit() int { return int(p.hit.Load()) }

// meet returns the fault of a command when that arrives, since Every counts them.
// follows is true for a command that arrived in one write with others.
func (p *Proxy) meet(verb string, follows bool) Fault {
	if verb != "EVALSHA" {
		return Pass
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Add(1)
	p.mu.turn++
	f, every := p.mu.fault, max(p.mu.fault.every, 1)
	hits := p.mu.turn%every == 0 && (f.times == 0 || p.mu.turn/every <= f.times)
	if !hits || f.draw != nil && follows {
		return Pass
	}
	if f.draw != nil {
		f = f.draw()
	}
	if f.reply != nil {
		p.hit.Add(1)
	}
	return f
}

func (p *Proxy) accept(ctx context.Context) {
	defer p.wg.Done()
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Add(1)
		go p.serve(ctx, conn.(*net.TCPConn))
	}
}

// serve connects one client. It closes both connections when either direction
// ends, since a connection ends as a whole.
func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	defer p.wg.Done()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		// A proxy has accepted already and can't refuse. A reset comes closest.
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	ctx, drop := context.WithCancel(ctx)
	l := &link{p: p, client: client, server: server.(*net.TCPConn), due: make(chan Fault, pipelined)}
	l.done, l.drop, l.born = ctx.Done(), drop, p.forgets.Load()
	p.wg.Add(2)
	go l.copy(l.server, l.client, l.down)
	go l.copy(l.client, l.server, l.up)
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
}

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

// Fault is what a Proxy does to the round trips of EVALSHA. The server has
// executed the script in each of them: they test whether a client sends it
// again. For a server that does not read requests see Server.Stop.
type Fault struct {
	name string
	// reply handles a reply and reports whether the connection goes on. Nil passes
	// the reply.
	reply        func(l *link, out *bufio.Writer, reply []byte) bool
	draw         func() Fault
	every, times int // zero: each round trip, without an end
}

var (
	// Pass passes everything.
	Pass = Fault{name: "Pass"}

	// ResetAfterRequest drops the reply and resets the client's connection.
	ResetAfterRequest = Fault{name: "ResetAfterRequest", reply: func(l *link, _ *bufio.Writer, _ []byte) bool {
		_ = l.client.SetLinger(0) // makes the close a reset
		return false
	}}

	// HalfReply passes the first half of the reply's bytes, then closes the
	// connection in good order, so that the client reads that half.
	HalfReply = Fault{name: "HalfReply", reply: func(l *link, out *bufio.Writer, reply []byte) bool {
		send(out, reply[:len(reply)/2], false)
		// A close with unread requests would reset the connection and could lose
		// the half, so link.up reads on until the client closes.
		_ = l.client.CloseWrite()
		<-l.done
		return false
	}}

	// LoseReply drops the reply and all that follows it, and leaves the connection
	// open. The following replies are dropped since none can overtake a lost one.
	LoseReply = Fault{name: "LoseReply", reply: func(l *link, _ *bufio.Writer, _ []byte) bool {
		l.lost.Store(true)
		return true
	}}
)

// SwallowReply drops the reply and closes the connection after d, so that a
// client without a deadline frees its place in the pool.
func SwallowReply(d time.Duration) Fault { return hold("SwallowReply", d, false) }

// Delay holds the reply, and what follows it on that connection, for d.
func Delay(d time.Duration) Fault { return hold("Delay", d, true) }

func hold(name string, d time.Duration, pass bool) Fault {
	return Fault{name: fmt.Sprintf("%s(%v)", name, d), reply: func(l *link, _ *bufio.Writer, _ []byte) bool {
		select {
		case <-time.After(d):
			return pass
		case <-l.done:
			return false
		}
	}}
}

// Draw calls f for the fault of each round trip: of the first EVALSHA where
// several are sent in one write.
func Draw(f func() Fault) Fault { return Fault{name: "Draw", draw: f} }

// Every returns the fault for each n-th EVALSHA, counted from Proxy.Set.
func (f Fault) Every(n int) Fault {
	f.every = n
	return f
}

// Times returns the fault for its first n hits after Proxy.Set.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// String names the fault, for subtests.
func (f Fault) String() string { return f.name }
