package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
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
	mu        struct {
		sync.Mutex
		fault   Fault
		turn    int // EVALSHA since Set
		rewrite func([]byte) []byte
		links   map[*link]struct{}
		closed  bool
	}
}

// NewProxy listens on a port of 127.0.0.1 and connects each client to target.
// It begins with Pass. When the test ends it closes everything and waits for
// its goroutines.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, ln: ln}
	p.mu.links = map[*link]struct{}{}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
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
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.links {
		l.forgotten.Store(true)
	}
}

// Rewrite lets f change each reply on its way to the client: one whole RESP
// value at a time. Nil ends it.
func (p *Proxy) Rewrite(f func([]byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.rewrite = f
}

// Seen is the number of EVALSHA that have arrived, with a fault or without.
func (p *Proxy) Seen() int { return int(p.seen.Load()) }

// Hit is the number of EVALSHA with a fault. A hit counts when the request arrives, before the reply shows the fault.
func (p *Proxy) Hit() int { return int(p.hit.Load()) }

// meet returns the fault of a command when that arrives, since Every counts them.
func (p *Proxy) meet(verb string, follows bool) Fault {
	if verb != "EVALSHA" {
		return Pass
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Add(1)
	p.mu.turn++
	f := p.mu.fault.hits(p.mu.turn, follows)
	if f.reply != nil {
		p.hit.Add(1)
	}
	return f
}

// rewritten calls the user's function outside of the lock.
func (p *Proxy) rewritten(reply []byte) []byte {
	p.mu.Lock()
	f := p.mu.rewrite
	p.mu.Unlock()
	if f == nil {
		return reply
	}
	return f(reply)
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Add(1)
		go p.serve(conn.(*net.TCPConn))
	}
}

// serve connects one client, and removes its link when both directions have
// ended.
func (p *Proxy) serve(client *net.TCPConn) {
	defer p.wg.Done()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		// A proxy has accepted already and can't refuse. A reset comes closest.
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{p: p, client: client, server: server.(*net.TCPConn)}
	l.due, l.done = make(chan Fault, pipelined), make(chan struct{})
	defer p.remove(l)
	if !p.add(l) {
		l.drop()
		return
	}
	l.run()
}

// add returns false once the proxy is closed: close would not drop that link.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.links[l] = struct{}{}
	return !p.mu.closed
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.links, l)
}

// close drops the links under the lock: none can be added meanwhile. Then it
// waits, so that no goroutine outlives the test.
func (p *Proxy) close() {
	_ = p.ln.Close()
	p.mu.Lock()
	p.mu.closed = true
	for l := range p.mu.links {
		l.drop()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
