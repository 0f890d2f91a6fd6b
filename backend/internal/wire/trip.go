package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/layer"
)

// Trip carries groups to a server in one round trip, and from there whatever
// the server said it did not run, until the deadline. Each of its takes is
// answered once. The zero Trip is empty. One goroutine at a time uses it, and may
// use it again after a Fly that said so.
type Trip struct {
	groups []*Group // the first used of them are in use
	used   int

	Flight
	timer   *time.Timer
	ctx     *deadline
	joint   command  // all groups in one EVALSHA
	sending []*Group // those of a pipeline

	mu struct {
		sync.Mutex
		at      *Server // where the guard has let it in
		leave   func(error)
		wrote   int           // commands that were written, and not said to be not run
		written time.Duration // when the last one was, as Now
		late    bool          // Overdue was called
		over    bool          // the takes have their answers, or are about to
	}
}

// Flight says where a trip goes, and until when; instants are as Now.
type Flight struct {
	Server   *Server
	Ways     Ways // leads to other servers; nil: there are none, and all groups go in one command
	Begin    time.Duration
	Late     time.Duration // when Overdue is called; not before Deadline: never
	Deadline time.Duration // when Expired is called, after the takes were answered
	Overdue  func()
	Expired  func()
}

// End is how a trip ended.
type End struct {
	Expired  bool          // the deadline ended it: Expired was called, or is being called
	Late     bool          // Overdue was called
	Took     time.Duration // from the last write to the answer; 0 where none came
	Reusable bool          // the Trip may be used again
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

// Fly makes the round trip, on the calling goroutine.
func (t *Trip) Fly(f *Flight) End {
	if f.Ways == nil {
		gather(t.Groups())
		t.start(f)
		return t.flyJoint(nil)
	}
	t.start(f)
	return t.flyApart()
}

// start makes the trip ready. After the deadline the trip goes on in the client,
// for as long as that takes, but no caller waits for it.
func (t *Trip) start(f *Flight) {
	t.Flight = *f
	if t.Ways == nil {
		t.Ways = f.Server
	}
	if t.ctx == nil {
		t.ctx = newDeadline()
		t.timer = time.AfterFunc(time.Hour, t.ring)
	}
	t.ctx.until(t.Deadline)
	t.mu.at, t.mu.leave, t.mu.wrote, t.mu.late, t.mu.over = nil, nil, 0, false, false
	if t.Late <= t.Begin {
		t.Late = t.Deadline
	}
	t.timer.Reset(min(t.Late, t.Deadline) - t.Begin)
}

// claim reports whether the caller is the first to end the trip, and thus the one
// that answers its takes. leave is for telling the guard.
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

// ring runs when the trip is overdue, and when its deadline has passed.
func (t *Trip) ring() {
	t.mu.Lock()
	now := Now()
	if !t.mu.over && !t.mu.late && now < t.Deadline {
		t.mu.late = true
		overdue, server, ctx, sent := t.Overdue, t.Server, t.ctx, t.mu.wrote > 0
		t.timer.Reset(t.Deadline - now)
		t.mu.Unlock()
		if !sent {
			go server.tryDial(ctx) // mutant: dial-error-told
		}
		overdue()
		return
	}
	t.mu.Unlock()
	t.expire()
}

// expire ends a trip that has outlived its deadline.
func (t *Trip) expire() {
	at, leave, first := t.claim()
	if !first {
		return
	}
	t.ctx.end()
	why := t.spent()
	for _, g := range t.Groups() {
		g.fail(why)
	}
	t.judge(at, leave, errSpent)
	t.deliver()
	t.Expired()
}

// spent is errSpent with what kept the trip from being sent, where that is known.
func (t *Trip) spent() error {
	t.mu.Lock()
	sent := t.mu.wrote > 0
	t.mu.Unlock()
	if err := t.Server.dialError(t.Begin); err != nil && !sent {
		return fmt.Errorf("%w: %w", errSpent, err)
	}
	return errSpent
}

// Overran reports whether Overdue was called, for Expired.
func (t *Trip) Overran() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.late
}

// settle ends a trip that is over in time.
func (t *Trip) settle(at *Server, leave func(error), err error) (end End) {
	end.Late = t.mu.late // it is over: nothing changes it any more
	end.Reusable = t.timer.Stop() && !end.Late
	if t.mu.wrote > 0 && verdict(err) != layer.ErrFailed {
		end.Took = max(Now()-t.mu.written, 1)
	}
	t.judge(at, leave, err)
	t.deliver()
	t.used = 0
	return end
}

func (t *Trip) deliver() {
	for _, g := range t.Groups() {
		if g != nil {
			g.deliver()
		}
	}
}

// judge tells the guard how the trip ended at a server, nil where it was let in
// nowhere.
func (t *Trip) judge(at *Server, leave func(error), err error) {
	if leave == nil {
		return
	}
	v := verdict(err)
	if v == layer.ErrFailed && t.excused(at) {
		v = layer.ErrExcused
	}
	switch v {
	case nil:
		at.served.Store(int64(Now()))
	case layer.ErrFailed:
		t.Ways.Failed(at)
	}
	leave(v)
}

// excused reports whether the failure is not the server's. A server that answered
// other trips since is well: this one waited for our own pool, or lost its reply
// or its connection on the way, or this process was too busy to read it. A trip
// that began with less than half of the budget says how long its calls were
// pending.
func (t *Trip) excused(at *Server) bool {
	since, over := t.Begin, Now() >= t.Deadline
	if t.mu.wrote > 0 {
		since = t.mu.written
		if over {
			at.tryIdle() // other connections may be as dead as this one
		}
	}
	return at.served.Load() > int64(since) || over && t.Deadline-t.Begin < at.budget/2 // mutant: living-server-excused
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
	leave, err := s.shared.Enter(s.node)
	if err != nil {
		s.tryIdle()
		t.Ways.Failed(s)
		return err
	}
	t.mu.Lock()
	if !t.mu.over {
		t.mu.at, t.mu.leave, leave = s, leave, nil
	}
	t.mu.Unlock()
	if leave != nil {
		leave(layer.ErrExcused) // it was over meanwhile
	}
	return nil
}

// awaited appends the groups that someone waits for.
func (t *Trip) awaited(to, groups []*Group) []*Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range groups {
		if !t.mu.over && g.awaited() {
			to = append(to, g)
		}
	}
	return to
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
	if c.wrote { // mutant: not-written-twice
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
		t.mu.written = Now()
	}
	if any || c.follow || c.shared && !t.mu.over { // mutant: pipeline-of-left-callers
		return nil
	}
	return errWithdrawn
}

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
	if c.wrote { // mutant: not-written-twice
		c.wrote = false
		t.mu.wrote--
	}
	for _, g := range c.groups {
		g.unmark()
	}
}
