package batch

import (
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/layer"
)

// What a round trip shows of its server, which decides whether a circuit opens.

// note records what a server's reply shows of the link. It also records that the server
// has answered although no call has: when the reply is late for its callers.
//
// It runs after each try, before the outcome of the round trip is known.
func (t *roundTrip) note(s *Server, commands []*command) {
	t.mu.Lock()
	late, wrote, written, answer := t.mu.over, t.mu.wrote > 0, t.mu.written, now()
	t.mu.Unlock()
	if !wrote {
		return
	}
	answered := slices.IndexFunc(commands, func(c *command) bool { return c.Err() == nil || is(c.Err(), blameless) })
	if answered >= 0 {
		s.link.answered(written)
		if late || commands[answered].Err() != nil {
			//mutant:late-reply-is-an-answer
			s.served.Store(int64(now()))
		}
	}
	if late && answered < 0 && answer-written > s.Budget { // the connection may be dead, and others with it
		s.tryIdle()
	}
}

// leave reports to the guard what the round trip shows of the server. A deadline that
// passed says little by itself. This process may have been stopped, or too busy to read
// a reply that was there; see judge. The callers don't wait for that.
//
// What is sure comes first: an answer, then what is excused at once. A deadline comes last,
// since it needs a second look.
func (t *roundTrip) leave(v visit, said error) {
	since, over := t.began, now() >= t.mu.ends
	if t.mu.wrote > 0 {
		since = t.mu.written
	}
	switch at := v.at; {
	case said == nil:
		at.served.Store(int64(now()))
	case !errors.Is(said, layer.ErrFailed):
	//mutant:closed-by-us
	case at.Shared.Closed.Load(), t.excused(at, since, over), lost(said) && at.lostTogether(since):
		said = layer.ErrExcused
	default:
		if t.queue.router != nil {
			t.queue.router.Failed()
		}
		if over {
			judge(v, since, t.mu.wrote > 0, said)
			return
		}
		defer at.listen()
	}
	v.leave(said)
}

// lostTogether reports whether a round trip was sent before the last loss of a connection
// was seen. Whatever closed that one may have closed all: it is one event, and one failure.
// Idle connections are as dead, and over TLS a user's client does not see it.
func (s *Server) lostTogether(since time.Duration) bool {
	//mutant:lost-together
	if before := s.lost.Swap(int64(now())); int64(since) <= before {
		return true
	}
	s.tryAll()
	s.sent.Store(int64(now() - quiet)) // so that a user's client is tried before the next script
	return false
}

const (
	looks = 4                    // how many times this process looks for what has arrived while it did not run
	busy  = 5 * time.Millisecond // how late, at least, is a timer of a process that is too busy
)

// judge reports a round trip whose deadline passed to the guard. It is a failure only if
// the server answers nothing for another half of the budget. This process may have been
// stopped, or too busy to read a reply that was there, and may still be. Then its sleep
// is as late. Where nothing was written, the server has the time in which a connection
// may begin.
func judge(v visit, since time.Duration, wrote bool, said error) {
	v.at.missed(since)
	go func() {
		b := &v.at.begins
		//mutant:beginning-connection-excused
		for looked := 0; looked < looks || !wrote && b.beginning(v.at.Budget) && !v.at.link.near(v.at.Budget); looked++ {
			part, begin := v.at.Budget/2/looks, now()
			time.Sleep(part)
			late := now()-begin > part+max(part, busy)
			//mutant:read-too-late-excused
			if late || v.at.answered(since) || !wrote && b.began(since) {
				said = layer.ErrExcused
				break
			}
		}
		if said != layer.ErrExcused && v.at.dead() {
			said = backend.Wrap(layer.ErrSilent, said)
		}
		v.leave(said)
		v.at.listen()
	}()
}

// excused reports whether the failure is not the server's. A server that answered
// others since is well. This round trip waited for our own pool, or lost its reply or its
// connection on the way. Or else this process was too busy to read it. One that was sent, or
// at least began, with less than half of the budget left only says how long its calls
// were pending.
func (t *roundTrip) excused(at *Server, since time.Duration, over bool) bool {
	if over && t.mu.wrote > 0 {
		at.link.least.CompareAndSwap(0, int64(at.Budget)) // at least as long, if its reply is on the way
		if at.link.near(at.Budget) {
			at.tryIdle() // other connections may be as dead as this one
		}
	}
	//mutant:living-server-excused
	if at.answered(since) {
		return true
	}
	//mutant:sent-too-late-excused
	return over && (t.mu.late || t.mu.ends-since < at.Budget/2)
}

// outcome returns what the end of a command shows of the server: nil, layer.ErrExcused,
// or layer.ErrFailed with its cause.
//
// A reply that is an error counts as failed unless its class is blameless: a server that
// loads or is read-only can't decide.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	//mutant:withdrawn-excused
	case errors.As(err, new(withdrawal)), client.PoolFull(err), is(err, blameless):
		return layer.ErrExcused
	}
	return backend.Wrap(layer.ErrFailed, err)
}
