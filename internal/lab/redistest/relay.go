package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay stands between clients and a server and passes bytes as they are, TLS
// too. It adds a round trip, half of it in each direction and from the first byte
// on, and forgets connections. Its methods are safe for concurrent use.
type Relay struct {
	target  string
	ln      net.Listener
	wg      sync.WaitGroup
	rtt     atomic.Int64 // added, in nanoseconds
	patient atomic.Int64 // see ForgetSilent
	dialled atomic.Int64
	begin   time.Time
	ended   chan struct{}
}

// NewRelay listens on a port of 127.0.0.1 and connects each client to target. When
// the test ends it closes everything and waits for its goroutines.
func NewRelay(t testing.TB, target string, roundTrip time.Duration) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &Relay{target: target, ln: ln, begin: time.Now(), ended: make(chan struct{})}
	r.rtt.Store(int64(roundTrip))
	r.wg.Add(1)
	go r.accept()
	t.Cleanup(func() {
		_ = ln.Close()
		close(r.ended)
		r.wg.Wait()
	})
	return r
}

// Addr is where clients connect to.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Dialled is the number of connections that clients have made.
func (r *Relay) Dialled() int { return int(r.dialled.Load()) }

// SetRoundTrip changes the round trip that is added, for bytes that arrive from now on.
func (r *Relay) SetRoundTrip(d time.Duration) { r.rtt.Store(int64(d)) }

// ForgetSilent makes the relay forget each connection on which nothing came for d:
// what is sent later vanishes, both ways, and the connection stays open. Middleboxes
// do so.
func (r *Relay) ForgetSilent(d time.Duration) { r.patient.Store(int64(d)) }

func (r *Relay) accept() {
	defer r.wg.Done()
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return // closed
		}
		r.dialled.Add(1)
		r.wg.Add(1)
		go r.serve(client)
	}
}

// flow is a client's connection through a Relay.
type flow struct {
	*Relay
	last      atomic.Int64 // when bytes last came, as time.Since(begin)
	forgotten atomic.Bool
}

// chunk is what came at once. An empty one is the end.
type chunk struct {
	due   time.Time
	bytes []byte
}

// serve closes both connections when either direction ends.
func (r *Relay) serve(client net.Conn) {
	defer r.wg.Done()
	defer client.Close()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	f, done := &flow{Relay: r}, make(chan struct{}, 4)
	f.last.Store(int64(time.Since(r.begin)))
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		late := make(chan chunk, 1024)
		r.wg.Add(2)
		go f.read(way[0], late)
		go f.write(way[1], late, done)
	}
	select {
	case <-done:
	case <-r.ended:
	}
}

// read stamps what comes with the time when it is due.
func (f *flow) read(from net.Conn, late chan<- chunk) {
	defer f.wg.Done()
	defer close(late)
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		now := time.Since(f.begin)
		silent := now - time.Duration(f.last.Swap(int64(now)))
		if p := f.patient.Load(); p > 0 && silent >= time.Duration(p) {
			f.forgotten.Store(true)
		}
		if !f.forgotten.Load() {
			late <- chunk{time.Now().Add(time.Duration(f.rtt.Load() / 2)), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}

// write passes each chunk when it is due, and ends the flow after the last one.
func (f *flow) write(to net.Conn, late <-chan chunk, done chan<- struct{}) {
	defer f.wg.Done()
	for c := range late {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	for range late { // so that read ends
	}
	if !f.forgotten.Load() {
		done <- struct{}{}
	}
}
