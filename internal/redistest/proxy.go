package redistest

import (
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server and breaks round trips of EVALSHA;
// other commands pass. It knows which reply belongs to which command, also in a
// pipeline and under RESP3, as long as each command has one reply: not for
// pub/sub. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		fault       Fault
		every, turn int
		left        int // faults yet to come; below zero: no end
		seen, hit   int
		draw        func() Fault // nil: fault is set
		rewrite     func([]byte) []byte
		thaw        chan struct{} // closed at the thaw; nil: not frozen
		links       map[*link]struct{}
		closed      bool
	}
}

// NewProxy listens on a port of 127.0.0.1 and connects each client to target.
// It sets out with Pass. At the test's end it closes everything and waits for
// its goroutines.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, ln: ln}
	p.mu.every, p.mu.left = 1, -1
	p.mu.links = map[*link]struct{}{}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set puts a fault in place of the one before, for requests that arrive from
// now on. A reply that is being held stays held.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.fault, p.mu.draw, p.mu.turn = f, nil, 0
	if f.kind == frozen && p.mu.thaw == nil {
		p.mu.thaw = make(chan struct{})
	}
	if f.kind != frozen && p.mu.thaw != nil {
		close(p.mu.thaw)
		p.mu.thaw = nil
	}
}

// Every makes the fault hit only each n-th EVALSHA, counted from the last Set.
// 1, the default, is each one.
func (p *Proxy) Every(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.every, p.mu.turn = max(n, 1), 0
}

// Limit lets everything pass after n more faults; a negative n, the default,
// lifts the limit.
func (p *Proxy) Limit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.left = n
}

// Draw has f choose the fault of each round trip until the next Set: of the first
// EVALSHA where several are sent in one write. Freeze is none to choose. Every
// and Limit apply.
func (p *Proxy) Draw(f func() Fault) {
	p.Set(Pass)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.draw = f
}

// Forget drops, silently, whatever is sent from now on over the connections that
// there are, both ways, and leaves them open: as a load balancer that forgot its
// flows. New connections pass.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.mu.links {
		l.forgotten.Store(true)
	}
}

// Connections returns how many connections there are, forgotten ones included.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.links)
}

// Rewrite has f change each reply on its way to the client: one whole RESP
// value at a time, which must keep its length. Nil ends it.
func (p *Proxy) Rewrite(f func([]byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.rewrite = f
}

// Seen is how many EVALSHA have arrived, faulted or not.
func (p *Proxy) Seen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.seen
}

// Hit is how many EVALSHA a fault was applied to; for Freeze, how many ran into
// it. A hit counts from the request on, the fault follows with the reply.
func (p *Proxy) Hit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.hit
}

// meet decides what is to become of a command. It does so at the request, since
// requests are what Every counts.
func (p *Proxy) meet(verb string, follows bool) Fault {
	if verb != "EVALSHA" {
		return Pass
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.seen++
	f := p.mu.fault
	if p.mu.draw != nil && !follows {
		f = p.mu.draw()
	}
	switch f.kind {
	case pass:
		return Pass
	case frozen:
		p.mu.hit++
		return Pass // the gate holds it
	}
	p.mu.turn++
	if p.mu.left == 0 || p.mu.turn%p.mu.every != 0 {
		return Pass
	}
	if p.mu.left > 0 {
		p.mu.left--
	}
	p.mu.hit++
	return f
}

func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.thaw
}

func (p *Proxy) rewritten(frame []byte) []byte {
	p.mu.Lock()
	f := p.mu.rewrite
	p.mu.Unlock()
	if f == nil {
		return frame
	}
	return f(frame)
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

func (p *Proxy) serve(client *net.TCPConn) {
	defer p.wg.Done()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		// A reset is as near as we come to the refusal that we met.
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	defer p.remove(l)
	if !p.add(l) {
		l.drop()
		return
	}
	l.run()
}

// add refuses once the proxy is closed: that link nobody would drop.
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
