package batch

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"golang.org/x/sync/singleflight"
)

// link is what is known of the link to a server.
type link struct {
	*client.Trips
	beside   client.Trips // of connections beside the pool, as a look has
	measured bool         // by the connections, which exclude what this process was late by itself
	least    atomic.Int64 // how long the first one has taken that was late, until one ends
}

// newLink returns what is known of the link of a client, which is nothing yet.
func newLink(of Client) *link {
	if c, ok := of.(interface{ Trips() *client.Trips }); ok {
		return &link{Trips: c.Trips(), measured: true}
	}
	return &link{Trips: &client.Trips{}}
}

// answered is called when the reply to what was written then has been read.
func (l *link) answered(written time.Duration) {
	if !l.measured {
		l.Add(written, now())
	}
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

// near reports whether the link is known, and no reply that is late is so by its length. Until
// the first answer the time of a dial shows that: the system of a server that is stopped still
// accepts connections.
func (l *link) near(budget time.Duration) bool {
	trip := l.time()
	if trip == 0 {
		trip = l.beside.Shortest()
	}
	//mutant:dial-shows-link
	if trip == 0 {
		trip = cmp.Or(l.Dial(), l.beside.Dial())
	}
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
	text := withdrawal(fmt.Sprintf("a round trip takes %v, and the budget has %v left",
		trip.Round(time.Millisecond), left.Round(time.Millisecond)))
	return unreachable{text, trip > Deadline(0, s.Budget)}
}

// unreachable is the withdrawal of a command whose reply would be late. One to a server that
// answers none within a budget is not excused: other servers are to be asked.
type unreachable struct {
	withdrawal
	always bool // for any call, however early
}

// Is makes it layer.ErrExcused, unless it is always so.
func (e unreachable) Is(target error) bool {
	//mutant:far-server-avoided
	return !e.always && e.withdrawal.Is(target)
}

// As makes it a withdrawal.
func (e unreachable) As(target any) bool {
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

// reach waits until a reply can come by ends. An error is why none can, and is returned at
// ends. A caller that is refused at once calls again at once. Such calls would keep the
// processor from what shows that the link is short: the refusal would sustain itself.
//
// While scripts are sent, they show how long the link is. Where none is, a PING does.
func (s *Server) reach(ends func() time.Duration, held func(error)) error {
	for pings, why := (<-chan singleflight.Result)(nil), error(nil); ; {
		left, far := ends()-now(), unreachable{}
		err := s.tooFar(left)
		//mutant:refused-call-waits
		if !errors.As(err, &far) {
			if err != nil && why != nil {
				err = why
			}
			return err
		}
		if why == nil {
			why = err
			held(why)
		}
		//mutant:known-link-not-measured
		if pings == nil && (far.always || s.link.old()) {
			pings = s.measure(ends())
		}
		select {
		case r := <-pings:
			if pings = nil; r.Err != nil { // another one would fail as well
				time.Sleep(left)
			}
		case <-time.After(left):
		}
	}
}

// measure has a PING answered, unless one is under way. Its connection may be dead where
// nothing was sent for a while, and a user's client hides that.
func (s *Server) measure(ends time.Duration) <-chan singleflight.Result {
	//mutant:far-silence-tried
	if s.silent() {
		return s.woken(ends, 10*s.Budget)
	}
	return s.loading.DoChan("ping", s.ping)
}

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
