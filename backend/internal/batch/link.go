package batch

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"golang.org/x/sync/singleflight"
)

// link is what is known of the link to a server.
type link struct {
	client.Trips
	least atomic.Int64 // how long the first one has taken that was late, until one ends
}

// old reports whether what is known of the link was measured so long ago that it may be
// another one by now.
//
//mutant:link-known-for-a-second
func (l *link) old() bool { return now()-l.Added() > time.Second }

// fresh returns the shortest round trip, 0 if what is known of the link is old.
func (l *link) fresh() time.Duration {
	if l.old() {
		return 0
	}
	return l.Shortest()
}

// time returns the shortest round trip, 0 where there was none.
func (l *link) time() time.Duration {
	if shortest := l.Shortest(); shortest > 0 {
		return shortest
	}
	return time.Duration(l.least.Load())
}

// near reports whether the link is known, and no reply that is late is so by its length.
func (l *link) near(budget time.Duration) bool {
	trip := l.time()
	return trip > 0 && trip < budget/4
}

// tooFar returns an error if a reply can't come while there is left of the budget. It
// costs the server nothing to be spared a script whose answer would be late.
func (s *Server) tooFar(left time.Duration) error {
	trip := s.link.time()
	switch {
	//mutant:time-over-named
	case left <= 0:
		return withdrawal("the call could not be answered in time")
	//mutant:too-far-not-sent
	case left >= trip:
		return nil
	}
	// While scripts are sent, they show how long the link is.
	//
	//mutant:known-link-not-measured
	if trip > s.Budget || s.link.old() {
		s.measure()
	}
	text := fmt.Sprintf("a round trip takes %v, and the budget has %v left",
		trip.Round(time.Millisecond), left.Round(time.Millisecond))
	//mutant:far-server-avoided
	if trip > Deadline(0, s.Budget) {
		return tooLong{withdrawal(text)}
	}
	return withdrawal(text)
}

// tooLong is the withdrawal of a command to a server that answers none within a budget.
type tooLong struct{ withdrawal }

// Is is that of no error: other servers are to be asked.
func (tooLong) Is(error) bool { return false }

// As makes it a withdrawal.
func (e tooLong) As(target any) bool {
	w, ok := target.(*withdrawal)
	if ok {
		*w = e.withdrawal
	}
	return ok
}

// inTime is tooFar when the command has its connection. While no round trip is known, half
// of the budget has to be left: the rest went into the connection, over the same link.
func (s *Server) inTime(left time.Duration) error {
	//mutant:unknown-link-not-late
	if s.link.time() == 0 && left < s.Budget/2 {
		return withdrawal("a connection began too late")
	}
	return s.tooFar(left)
}

// reach returns an error if a reply can't come by ends. Where what is known of the link
// is old, a PING is answered first. A lone caller must not be refused for what the link
// was seconds ago.
func (s *Server) reach(ends time.Duration) error {
	err := s.tooFar(ends - now())
	//mutant:old-link-measured
	if err == nil || !s.link.old() {
		return err
	}
	measured := s.measure()
	//mutant:far-silence-tried
	if s.silent() { // the PING's connection may be dead, and the client hides that
		measured = s.woken(ends, 10*s.Budget)
	}
	select {
	case <-measured:
		return s.tooFar(ends - now())
	case <-time.After(ends - now()):
		return err
	}
}

// measure sends a PING, unless one is under way. Over a link that is too long for the
// budget no script shows when it is short again.
func (s *Server) measure() <-chan singleflight.Result { return s.loading.DoChan("ping", s.ping) }

// ping is a round trip that may be late.
func (s *Server) ping() (any, error) { return nil, s.process(10*s.Budget, "", "ping") }

// payload is the last argument of a command, and notes when that is written.
type payload struct {
	text    string
	ready   func()       // is called when it is written
	written atomic.Int64 // as now; 0: it was not
}

// MarshalBinary is called by go-redis when it writes the command.
func (p *payload) MarshalBinary() ([]byte, error) {
	p.ready()
	p.written.Store(int64(now()))
	return []byte(p.text), nil
}

// String is what a hook that prints the command shows.
func (p *payload) String() string { return p.text }
