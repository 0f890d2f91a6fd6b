package redistest

import (
	"fmt"
	"time"
)

// Fault is what a Proxy does to the round trip of an EVALSHA. In all of them
// but Freeze the server has executed the script: the question that they put to
// a client is whether it sends it once more.
type Fault struct {
	kind kind
	d    time.Duration
}

type kind int

const (
	pass kind = iota
	swallow
	reset
	half
	delay
	lose
	frozen
)

var (
	// Pass lets everything through.
	Pass = Fault{kind: pass}

	// ResetAfterRequest drops the reply and resets the client's connection.
	ResetAfterRequest = Fault{kind: reset}

	// HalfReply passes the first half of the reply's bytes, then ends the
	// connection in good order, so that the client reads that half.
	HalfReply = Fault{kind: half}

	// LoseReply drops the reply and all that follows it, and leaves the connection
	// open.
	LoseReply = Fault{kind: lose}

	// Freeze holds everything, of all connections and both ways, until another
	// fault is set; new connections are accepted. As with a suspended server,
	// a request that waits here is executed after the thaw, even if its client
	// has gone. Every and Limit don't apply.
	Freeze = Fault{kind: frozen}
)

// SwallowReply drops the reply and closes the connection after hold, so that a
// client without a deadline gets its pool's slot back.
func SwallowReply(hold time.Duration) Fault { return Fault{swallow, hold} }

// Delay holds the reply, and what follows it on that connection, for d.
func Delay(d time.Duration) Fault { return Fault{delay, d} }

// String names the fault, for subtests.
func (f Fault) String() string {
	switch f.kind {
	case swallow:
		return fmt.Sprintf("SwallowReply(%v)", f.d)
	case reset:
		return "ResetAfterRequest"
	case half:
		return "HalfReply"
	case delay:
		return fmt.Sprintf("Delay(%v)", f.d)
	case lose:
		return "LoseReply"
	case frozen:
		return "Freeze"
	}
	return "Pass"
}
