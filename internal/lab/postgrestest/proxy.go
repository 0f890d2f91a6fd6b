package postgrestest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// Message is one of PostgreSQL's protocol, on its way through a Proxy.
type Message struct {
	FromServer bool
	Type       byte // 0: the first of a client, which has none
	Body       []byte
}

// Commits reports whether the message says that a transaction was committed.
func (m Message) Commits() bool {
	return m.FromServer && m.Type == 'C' && string(m.Body) == "COMMIT\x00"
}

// Fate is what becomes of a message.
type Fate int

// The fates.
const (
	Pass     Fate = iota
	Cut           // it is lost, and both connections are closed
	CutAfter      // it arrives, and then both connections are closed
)

// Proxy stands between clients and a server. It is safe for concurrent use.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		fate   func(Message) Fate
		refuse int // connections
		open   map[net.Conn]struct{}
	}
}

// NewProxy listens on a port of 127.0.0.1 and connects each client to target. When the test
// ends it closes everything.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, ln: ln}
	p.mu.open = map[net.Conn]struct{}{}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		_ = ln.Close()
		p.CloseAll()
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Set makes f choose what becomes of each message from now on; nil passes all. It is called
// by one message at a time.
func (p *Proxy) Set(f func(Message) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.fate = f
}

// Refuse closes the next n connections at once.
func (p *Proxy) Refuse(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.refuse = n
}

// CloseAll closes all connections.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.mu.open {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer client.Close()
	p.mu.Lock()
	p.mu.refuse--
	refuse := p.mu.refuse >= 0
	p.mu.Unlock()
	if refuse {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.mu.open[client], p.mu.open[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Add(2)
	shut := func() { _, _ = client.Close(), server.Close() }
	go func() { defer both.Done(); defer shut(); p.copy(client, server, false) }()
	go func() { defer both.Done(); defer shut(); p.copy(server, client, true) }()
	both.Wait()
	p.mu.Lock()
	delete(p.mu.open, client)
	delete(p.mu.open, server)
	p.mu.Unlock()
}

func (p *Proxy) copy(from, to net.Conn, fromServer bool) {
	in, out := bufio.NewReader(from), bufio.NewWriter(to)
	for first := !fromServer; ; first = false {
		m, raw, err := read(in, first)
		if err != nil {
			return
		}
		m.FromServer = fromServer
		fate := p.fateOf(m)
		if fate == Cut {
			_ = out.Flush()
			return
		}
		if _, err := out.Write(raw); err != nil {
			return
		}
		if in.Buffered() == 0 || fate == CutAfter {
			if out.Flush() != nil || fate == CutAfter {
				return
			}
		}
	}
}

func (p *Proxy) fateOf(m Message) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.fate == nil {
		return Pass
	}
	return p.mu.fate(m)
}

// read reads one whole message.
func read(in *bufio.Reader, first bool) (m Message, raw []byte, err error) {
	head := 5
	if first {
		head = 4
	}
	raw = make([]byte, head)
	if _, err = io.ReadFull(in, raw); err != nil {
		return m, nil, err
	}
	if !first {
		m.Type = raw[0]
	}
	n := int(binary.BigEndian.Uint32(raw[head-4:])) - 4
	if n < 0 || n > 1<<28 {
		return m, nil, io.ErrUnexpectedEOF
	}
	m.Body = make([]byte, n)
	_, err = io.ReadFull(in, m.Body)
	return m, append(raw, m.Body...), err
}
