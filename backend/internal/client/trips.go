package client

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Epoch is what Now counts from.
var Epoch = time.Now()

// Now is the time on the monotonic clock: reading only that one costs half of what time.Now
// does.
func Now() time.Duration { return time.Since(Epoch) }

// Trips is the time of a server's last round trips, from the write to the reply. The
// shortest one counts, since any other may be late for a reason of its own. Round trips
// that were under way together count as one: a single stall makes all of them late.
type Trips struct {
	trips [4]atomic.Int64
	next  atomic.Uint32
	added atomic.Int64 // when the last one was answered
	dial  atomic.Int64 // the least time in which a connection was made
}

// TripsOf returns what the connections of a client with our Options measure.
func TripsOf(o *redis.Options) *Trips { return racerOf(o).trips }

// Add adds a round trip that was written at one instant and answered at another, both as Now.
func (t *Trips) Add(written, answered time.Duration) {
	took, last := max(int64(answered-written), 1), t.added.Load()
	//mutant:one-stall-counts-once
	if int64(written) >= last && t.added.CompareAndSwap(last, int64(answered)) {
		t.trips[t.next.Add(1)%uint32(len(t.trips))].Store(took)
	} else if t := &t.trips[t.next.Load()%uint32(len(t.trips))]; took < t.Load() {
		t.Store(took)
	}
}

// Dialled notes how long a dial took, TLS included.
func (t *Trips) Dialled(took time.Duration) {
	for least := t.dial.Load(); least == 0 || int64(took) < least; least = t.dial.Load() {
		if t.dial.CompareAndSwap(least, max(int64(took), 1)) {
			return
		}
	}
}

// Dial returns the least time in which a connection was made, 0 if none was. The server may
// be farther away than that: a proxy on the way may have answered the dial.
func (t *Trips) Dial() time.Duration { return time.Duration(t.dial.Load()) }

// Added returns when the last one was answered.
func (t *Trips) Added() time.Duration { return time.Duration(t.added.Load()) }

// Shortest returns the shortest, 0 where there was none.
func (t *Trips) Shortest() (shortest time.Duration) {
	for i := range t.trips {
		if t := time.Duration(t.trips[i].Load()); t > 0 && (t < shortest || shortest == 0) {
			shortest = t
		}
	}
	return shortest
}

// prompt is how long a reply may take before the kernel is asked for its part of that. The
// kernel counts in steps of up to 10 ms.
const prompt = 10 * time.Millisecond

// measure adds the round trip whose reply was just read. Where a processor was free late,
// before the request was written or after its reply came, that is no part of it.
func (c *conn) measure() {
	wrote := time.Duration(c.wrote.Load())
	took := Now() - wrote
	if s, ok := socket(c.Conn); ok && took > prompt {
		if raw, err := s.SyscallConn(); err == nil {
			//mutant:own-lateness-is-no-trip
			took = min(took, onTheWay(raw, took))
		}
	}
	c.racer.trips.Add(wrote, wrote+took)
}

// socket returns what has the connection's socket, also that below TLS.
func socket(c any) (s syscall.Conn, ok bool) {
	if secure, over := c.(below); over {
		c = secure.NetConn()
	}
	s, ok = c.(syscall.Conn)
	return s, ok
}
