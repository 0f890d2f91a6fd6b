package script

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Trip carries groups to a server in one round trip, and from there whatever
// the server said it did not run, until the deadline. Each of its takes is
// answered once. The zero Trip is empty; it is used by one goroutine at a time,
// which may use it again after a Fly that said so.
type Trip struct {
	groups []*Group // the first used of them are aboard
	used   int

	server   *Server // where the trip begins
	ways     Ways
	begin    time.Duration // as Now
	deadline time.Duration
	Inline   bool // made on its caller's goroutine; see Server.Prompt
	timer    *time.Timer
	ctx      *patience
	joint    command // all groups in one EVALSHA
	expired  func()
	heard    bool // see Heard

	mu struct {
		sync.Mutex
		at    *Server // where the guard has let it in
		leave func(error)
		wrote int  // commands that were written, and not said to be not run
		over  bool // the takes have their answers, or are about to
	}
}

// Ways says where a group goes that a server did not serve.
type Ways interface {
	// Next names the server to ask for the slot: at first for a nil error, then
	// for the reply, of the server it is at, that said the script did not run.
	// Asking says that the server wants to be told so (ASK).
	Next(ctx context.Context, slot int, at *Server, err error) (to *Server, asking bool, e error)
	// Failed is told that a server did not answer, or may not be asked.
	Failed(s *Server)
}

// Next is the server itself: there is no other.
func (s *Server) Next(context.Context, int, *Server, error) (*Server, bool, error) {
	return s, false, nil
}

// Failed has nothing to do where there is no other server.
func (s *Server) Failed(*Server) {}

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself: who waits for the whole of it is late.
const reserve = 5 * time.Millisecond

// Deadline is when a round trip has to be over whose first call began then.
func Deadline(begin, budget time.Duration) time.Duration {
	return begin + budget - min(budget/20, reserve)
}

// Add takes one more group aboard, to be filled before Fly.
func (t *Trip) Add() *Group {
	if t.used == len(t.groups) {
		t.groups = append(t.groups, nil)
	}
	if t.groups[t.used] == nil {
		t.groups[t.used] = &Group{}
	}
	t.used++
	return t.groups[t.used-1]
}

// Groups returns what is aboard.
func (t *Trip) Groups() []*Group { return t.groups[:t.used] }

// start makes the trip ready. expired is called, on a goroutine of its own,
// after the deadline has ended the trip: it goes on in the client, for as long
// as that pleases, but nobody waits for it any more.
func (t *Trip) start(s *Server, w Ways, now, deadline time.Duration, expired func()) {
	t.server, t.ways, t.begin, t.deadline, t.expired = s, w, now, deadline, expired
	if t.ctx == nil {
		t.ctx = newPatience()
		t.timer = time.AfterFunc(time.Hour, t.expire)
	}
	t.ctx.until(deadline)
	t.mu.at, t.mu.leave, t.mu.wrote, t.mu.over = nil, nil, 0, false
	t.heard = false
	t.timer.Reset(deadline - now)
}

// claim says whether the caller is the first to end the trip, and thus the
// one that answers its takes. leave is for telling the guard.
func (t *Trip) claim() (at *Server, leave func(error), first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = !t.mu.over
	at, leave = t.mu.at, t.mu.leave
	t.mu.over, t.mu.leave = true, nil
	return at, leave, first
}

// errSpent is why a trip ended that had no answer in time.
var errSpent = errors.New("budget spent")

// expire ends a trip that has outlived its deadline.
func (t *Trip) expire() {
	at, leave, first := t.claim()
	if !first {
		return
	}
	t.ctx.end()
	for _, g := range t.Groups() {
		g.fail(errSpent)
	}
	t.judge(at, leave, errSpent)
	t.deliver()
	t.expired()
}

// settle ends a trip that is over in time. It says whether the trip may be used
// again: not where its timer has begun to run.
func (t *Trip) settle(at *Server, leave func(error), err error) (again bool) {
	again = t.timer.Stop()
	t.heard = t.mu.wrote > 0 && verdict(err) != backend.ErrFailed
	t.judge(at, leave, err)
	t.deliver()
	t.used = 0
	return again
}

func (t *Trip) deliver() {
	for _, g := range t.Groups() {
		if g != nil {
			g.deliver()
		}
	}
}

// judge tells the guard how the trip ended at a server, nil where it was let
// in nowhere. One that was never sent, because all of the pool's connections
// were out while the server answered others, says nothing of the server. While
// it answers nobody it is to blame: a frozen server fills the pool with
// connections that never get ready.
func (t *Trip) judge(at *Server, leave func(error), err error) {
	if leave == nil {
		return
	}
	v := verdict(err)
	if v == backend.ErrFailed && t.mu.wrote == 0 && at.busy(t.begin) {
		v = backend.ErrExcused
	}
	switch v {
	case nil:
		at.served.Store(int64(Now()))
	case backend.ErrFailed:
		t.ways.Failed(at)
	}
	leave(v)
}

// enter asks the guard for s, and leaves the server that the trip was at with
// what that one said, if it is another.
func (t *Trip) enter(s *Server, said error) error {
	t.mu.Lock()
	at, old, over := t.mu.at, t.mu.leave, t.mu.over
	if at == s || over {
		t.mu.Unlock()
		return nil // a trip that is over is not written either
	}
	t.mu.at, t.mu.leave = nil, nil
	t.mu.Unlock()
	t.judge(at, old, said)
	leave, err := s.hub.Enter(s.node)
	if err != nil {
		t.ways.Failed(s)
		return err
	}
	t.mu.Lock()
	if !t.mu.over {
		t.mu.at, t.mu.leave, leave = s, leave, nil
	}
	t.mu.Unlock()
	if leave != nil {
		leave(backend.ErrExcused) // it was over meanwhile
	}
	return nil
}

// write marks and packs what stands in the command, and says why it may not be
// written.
// One of several in a pipeline is: an error would be that of all. Where nobody
// waits for its answer any more it only looks. Once the trip is over, nothing
// is, but for the rest of what was begun. What was written may have run, and is
// not written again.
func (t *Trip) write(c *command) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.wrote {
		return errAgain
	}
	any := false
	for _, g := range c.groups {
		if t.mu.over {
			g.sent = g.sent[:0]
		} else if g.mark() {
			any = true
		}
	}
	c.asked = pack(c.asked[:0], c.groups)
	if c.wrote = any; any {
		t.mu.wrote++
	}
	if any || c.follow || c.shared && !t.mu.over {
		return nil
	}
	return errWithdrawn
}

// Heard reports whether the trip that is over was made, and answered: some
// command was written that the server did not say it had not run, and the
// connection did not end instead.
func (t *Trip) Heard() bool { return t.heard }

// errAgain ends a command that a hook sends again, and its connection with it:
// part of a pipeline may be on the way.
var errAgain = errors.New("sent again by a hook")

// notRun takes the marks back from a command that a server said it did not run.
func (t *Trip) notRun(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.over {
		return
	}
	if c.wrote {
		c.wrote = false
		t.mu.wrote--
	}
	for _, g := range c.groups {
		g.unmark()
	}
}
