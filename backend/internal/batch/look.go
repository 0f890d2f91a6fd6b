package batch

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/redis/go-redis/v9"
)

// A look is a PING on a connection of its own, by the client's own dialer. It is sent while
// the circuit is closed, beside a round trip that is late, and shows two things sooner than
// round trips do:
//
//   - Nothing listens. A user's client dials five times before it reports that, so callers
//     would wait for the whole budget.
//   - The server answers nothing. Then a caller that calls again and again waits for three
//     budgets, and not for as many as the circuit counts failures.
//
// A look that is answered excuses nothing: the server may answer PING and no script.

// look looks at the server, once for all round trips that are late together. It returns an
// error if the server refuses connections.
func (s *Server) look() error {
	_, err, _ := s.loading.Do("look", func() (any, error) {
		s.looking.Store(int64(now()))
		defer s.looking.Store(0)
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		err := client.Guarded(func() error { return s.ready(ctx) })
		if err == nil {
			s.lookFrom.Store(int64(now() + seldom))
		}
		return nil, refusal(ctx, err)
	})
	return err
}

// refusal returns the error of a connection that could not be made, nil for another error.
func refusal(ctx context.Context, err error) error {
	var slow net.Error
	var reply redis.Error
	if ctx.Err() != nil || errors.As(err, &slow) && slow.Timeout() || errors.As(err, &reply) || err == errReplica {
		return nil
	}
	return err
}

// overdue looks at the server of a round trip that waits for a connection of a user's client.
// If the server refuses, the calls have their answers at once. One that waits for a shorter link
// begins no connection.
func (t *roundTrip) overdue() {
	s := t.queue.server
	//mutant:late-dial-looked-at
	if !s.hides || t.held.Load() != nil || !t.unsent() {
		return
	}
	go func() {
		if err := s.look(); err != nil && t.unsent() {
			if v, first := t.claim(false); first {
				t.abandon(v, err)
				if t.queue.yield(t, true) {
					t.queue.run()
				}
			}
		}
	}()
}

// unsent reports whether the round trip is not over, and nothing of it was written.
func (t *roundTrip) unsent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.mu.over && t.mu.wrote == 0
}

// abandon answers the calls with an error. The client may still use them.
func (t *roundTrip) abandon(v visit, why error) {
	for _, g := range t.groups {
		g.fail(why, true)
	}
	t.end(v, outcome(why))
}

// missed notes a round trip that had no answer by its deadline, and looks at the server. One
// whose link is not known, or long, may need longer for only its first connection. A
// connection that was made at once shows that the link is short. On a starved host a look would
// show nothing. Many processes that look would keep the processors from the server.
func (s *Server) missed(since time.Duration) {
	//mutant:look-beside-the-pool
	if !s.link.near(s.Budget) || !client.Shows(s.client) {
		return
	}
	if mute := s.mute.Load(); mute == 0 || s.answered(time.Duration(mute)) {
		s.mute.Store(int64(since))
	}
	//mutant:no-look-on-starved-host
	if starved.Host() {
		return
	}
	//mutant:looks-seldom
	if now() >= time.Duration(s.lookFrom.Load()) {
		go func() { _ = s.look() }()
	}
}

// dead reports whether the server has answered nothing for two budgets, a look for the last half
// of one of them. A server that has never answered a call may be far behind a proxy that is near.
// There the first reply to a look is an answer, to HELLO too.
func (s *Server) dead() bool {
	mute, looking := time.Duration(s.mute.Load()), time.Duration(s.looking.Load())
	//mutant:look-without-end-answers
	if !s.link.near(s.Budget) || s.link.beside.Added() > mute {
		return false
	}
	//mutant:silence-opens
	return !s.answered(mute) && now()-mute >= 2*s.Budget && looking > 0 && now()-looking >= s.Budget*3/8
}
