package redistest

import (
	"bufio"
	"fmt"
	"time"
)

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
		l.forgotten.Store(true)
		return true
	}}
)

// SwallowReply drops the reply and closes the connection after hold, so that a
// client without a deadline frees its place in the pool.
func SwallowReply(hold time.Duration) Fault {
	return Fault{name: fmt.Sprintf("SwallowReply(%v)", hold), reply: func(l *link, _ *bufio.Writer, _ []byte) bool {
		l.wait(hold)
		return false
	}}
}

// Delay holds the reply, and what follows it on that connection, for d.
func Delay(d time.Duration) Fault {
	return Fault{name: fmt.Sprintf("Delay(%v)", d), reply: func(l *link, _ *bufio.Writer, _ []byte) bool {
		return l.wait(d)
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

// hits returns the fault of the n-th EVALSHA since Proxy.Set, Pass if none.
// follows is true for an EVALSHA that arrived in one write with others.
func (f Fault) hits(n int, follows bool) Fault {
	every := max(f.every, 1)
	switch {
	case n%every != 0 || f.times > 0 && n/every > f.times || f.draw != nil && follows:
		return Pass
	case f.draw != nil:
		return f.draw()
	}
	return f
}
