package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"golang.org/x/sync/singleflight"
)

// begins is what is known of connections that begin. A pool does not report them. A
// round trip waits for its connection from when it is passed to the client until its
// command is written. Instants are as now.
//
// All round trips to a server share it without a lock. One that decides by an older state
// costs a connection or a pause too many.
type begins struct {
	first atomic.Int64 // when the first round trip began to wait, since one last had its connection
	last  atomic.Int64 // when the last one did
	got   atomic.Int64 // when one last had its connection, or an error
	had   atomic.Int64 // when one last had its connection

	watchers atomic.Int64
	mu       struct {
		sync.Mutex
		changed chan struct{} // see watch
	}
}

// patience is how long round trips wait for a connection that another one has begun,
// before one begins another. grace is how long a connection may take to begin before
// that counts as the server's failure. A long budget makes both longer.
const (
	patience = 250 * time.Millisecond
	grace    = time.Second
)

// begin waits until a script may be passed to the client. An error is why nothing is to be
// sent. held is called with the reason while the link seems too long.
//
// Its order is that of cost. reach needs no server if the link is known, wake one round
// trip, and the others wait for work that is under way.
func (s *Server) begin(ends func() time.Duration, held func(error)) error {
	if err := s.reach(ends, held); err != nil {
		return err
	}
	s.wake(ends())
	for looks := 0; s.warming.Load() && now() < ends(); looks++ { // a script that is not loaded would need another connection
		client.Sleep(looks)
	}
	if !s.await(ends) {
		return context.DeadlineExceeded
	}
	return nil
}

// await waits while an earlier round trip waits for a connection that it could not have
// in its time. It waits if no other one had one since. Over a long link each call would begin
// one more, and none would have any. It reports whether there is time left.
func (s *Server) await(ends func() time.Duration) bool {
	b := &s.begins
	for wait := s.waits(ends()); wait > 0; wait = s.waits(ends()) {
		changed := b.watch()
		if wait = s.waits(ends()); wait > 0 {
			select {
			case <-changed:
			case <-time.After(wait):
			}
		}
		b.watchers.Add(-1)
	}
	return now() < ends()
}

// waits returns how long a round trip is to wait for a connection that another one has
// begun. If it is not to wait, it begins one itself.
func (s *Server) waits(ends time.Duration) time.Duration {
	b := &s.begins
	for {
		at, last, got := now(), time.Duration(b.last.Load()), time.Duration(b.got.Load())
		since, most := at-last, max(patience, 5*s.Budget/2)
		begun := last > got && since < most
		switch {
		case at >= ends:
			return 0
		//mutant:begun-connection-awaited
		case begun && since >= s.Budget/20:
			return min(most-since, ends-at)
		case begun || !b.last.CompareAndSwap(int64(last), int64(at)):
		//mutant:full-pool-prolongs-nothing
		case b.first.Load() <= int64(got):
			b.first.Store(int64(at))
		}
		return 0
	}
}

// watch returns a channel that is closed when a round trip has its connection, or none.
func (b *begins) watch() <-chan struct{} {
	b.watchers.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.changed == nil {
		b.mu.changed = make(chan struct{})
	}
	return b.mu.changed
}

// beginning reports whether a connection is beginning, for no longer than it may.
//
// A server far away needs several round trips before a connection can be used. Such a delay
// is not the server's failure.
func (b *begins) beginning(budget time.Duration) bool {
	first := b.first.Load()
	return first > b.got.Load() && now()-time.Duration(first) < max(grace, 3*budget)
}

// began reports whether a round trip had its connection since.
func (b *begins) began(since time.Duration) bool { return b.had.Load() > int64(since) }

// ready is called when a round trip has its connection, ended when the client has returned.
func (b *begins) ready() {
	b.had.Store(int64(now()))
	b.ended()
}

// returned is called when the client has returned a script's command. A full pool says
// nothing of connections, which may still begin. It begins none, so none is waited for.
func (b *begins) returned(err error) {
	//mutant:full-pool-begins
	if !client.PoolFull(err) {
		b.ended()
		return
	}
	//mutant:full-pool-not-awaited
	b.last.Store(b.got.Load())
}

func (b *begins) ended() {
	b.got.Store(int64(now()))
	if b.watchers.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.changed != nil {
		close(b.mu.changed)
		b.mu.changed = nil
	}
}

// quiet is the silence after which the connections of a user's client are tried.
const quiet = time.Second

// wake has a PING answered before a script is sent, where nothing was for a while on the
// connections of a user's client. The client hides how long they were idle, and over TLS
// that the server has closed them. All round trips wait for the same trial. Where two
// round trips take longer than there is time, there is none.
func (s *Server) wake(ends time.Duration) {
	left := ends - now()
	//mutant:quiet-connections-tried
	if !s.silent() || left < 2*s.link.time() {
		return
	}
	select {
	case <-s.woken(ends, s.Budget):
	case <-time.After(left):
	}
}

// silent reports whether nothing was sent for a while on the connections of a user's client.
func (s *Server) silent() bool {
	sent := time.Duration(s.sent.Load())
	return s.hides && sent != 0 && now()-sent >= quiet
}

// woken begins tryUntil, unless it is under way.
func (s *Server) woken(ends, within time.Duration) <-chan singleflight.Result {
	return s.loading.DoChan("wake", func() (any, error) {
		s.tryUntil(ends, within)
		s.sent.Store(int64(now()))
		return nil, nil
	})
}

// tryUntil sends a PING, and others on connections that fail, until one is answered. Where
// none comes, all idle connections and a new one are tried at once: the first answer's is
// the one that the client takes next. Each PING is awaited for the time within.
func (s *Server) tryUntil(ends, within time.Duration) {
	idle := client.Idle(s.client)
	answered, under := make(chan error, 2*idle+2), 0
	try := func() {
		under++
		go func() { answered <- s.process(within, "", "ping") }()
	}
	try()
	trip := s.link.time()
	if trip > s.Budget { // no call can be answered, unless it is shorter by now
		trip = 0
	}
	all, end := time.After(client.Patience(s.Budget, trip)), time.After(ends-now())
	for more := idle; under > 0; {
		select {
		case err := <-answered:
			if under--; err == nil {
				return
			}
			if more--; more >= 0 {
				try()
			}
		case <-all:
			//mutant:all-idle-tried
			for more = 0; under <= idle; {
				try()
			}
		case <-end:
			return
		}
	}
}
