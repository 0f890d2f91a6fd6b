package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
)

// Router leads to the servers of a cluster.
type Router interface {
	// Next returns the server to send a slot's command to after the server at has
	// replied err, which says that it did not run the command. Asking means that the
	// next server wants to be told so (ASK).
	Next(ctx context.Context, slot int, at *Server, err error) (to *Server, asking bool, e error)
	// Failed is told that a server did not answer, or may not be asked.
	Failed(s *Server)
}

// roundTrip sends commands to a server, and once more what that replied it did
// not run. Each call has its answer at the deadline; the client may take longer,
// but no caller waits for it.
type roundTrip struct {
	server   *Server
	router   Router // nil: there is no other server
	commands []*command
	begin    time.Duration // as now
	ctx      *deadline
	timer    *time.Timer
	late     func() // called where it takes longer than most
	expired  func() // called after the deadline has ended it
	whole    bool   // it has ended, and no other round trip carries on with a command

	mu struct {
		sync.Mutex
		over    bool // the calls have their answers, or are about to
		visit   visit
		wrote   int           // commands that were written, and not replied to be not run
		written time.Duration // when the last one was, as now
	}
}

// visit is the guard's leave to send to a server. The zero visit is none.
type visit struct {
	at    *Server
	leave func(error) // is called once, with what the round trip tells of the server
}

// newRoundTrip returns the round trip of groups: in one command on one server, in
// one command per group on a cluster.
func newRoundTrip(s *Server, r Router, groups []*group, deadline time.Duration) *roundTrip {
	t := &roundTrip{server: s, router: r, begin: now(), ctx: newDeadline(deadline)}
	t.late, t.expired = func() {}, func() {}
	t.timer = time.AfterFunc(time.Hour, t.ring)
	if r == nil {
		t.commands = []*command{newCommand(groups, t.write)}
		return t
	}
	for i := range groups {
		t.commands = append(t.commands, newCommand(groups[i:i+1], t.write))
	}
	return t
}

// run makes the round trip, on the calling goroutine, and calls late after a time.
// took is the time from the last write to the answer, 0 where none came. A round
// trip that its deadline has ended is not ok.
func (t *roundTrip) run(late time.Duration) (took time.Duration, ok bool) {
	t.timer.Reset(min(late, t.ctx.at-now()))
	err := guarded(t.send)
	v, ok := t.claim()
	if !ok {
		return 0, false
	}
	t.timer.Stop()
	moved, said := t.finish(err)
	if t.mu.wrote > 0 && said != layer.ErrFailed { // it is over: nothing changes these any more
		took = max(now()-t.mu.written, 1)
	}
	t.leave(v, said)
	for _, c := range t.commands {
		c.release()
		c.notify()
	}
	for _, c := range moved {
		go t.forward(c)
	}
	t.whole = len(moved) == 0
	return took, true
}

// finish reads the answers and returns the commands that another server may run,
// without the others waiting for it, and what the others tell of the server: a
// failure, else an answer.
func (t *roundTrip) finish(err error) (moved []*command, said error) {
	kept := t.commands[:0]
	said = layer.ErrExcused
	for _, c := range t.commands {
		if err != nil { // of the guard, or a panic: it is of all commands
			c.err = err
		}
		if len(t.commands) > 1 && is(c.err, redirect|soon) {
			moved = append(moved, c)
			continue
		}
		kept = append(kept, c)
		if c.err != nil && now() >= t.ctx.at {
			c.err = t.cause(c.err)
		}
		c.end(t.server.Prefix)
		if o := outcome(c.err); o == layer.ErrFailed || o == nil && said == layer.ErrExcused {
			said = o
		}
	}
	t.commands = kept
	return moved, said
}

// forward carries on with a command that the server did not run, in a round trip
// of its own.
func (t *roundTrip) forward(c *command) {
	next := newRoundTrip(t.server, t.router, nil, t.ctx.at)
	next.commands, c.write = []*command{c}, next.write
	next.run(time.Minute)
}

// claim reports whether the caller is the first to end the round trip, and thus
// the one that answers its calls and leaves the server.
func (t *roundTrip) claim() (v visit, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, first = t.mu.visit, !t.mu.over
	t.mu.visit, t.mu.over = visit{}, true
	return v, first
}

// ring runs when the round trip is late, and at its deadline.
func (t *roundTrip) ring() {
	if left := t.ctx.at - now(); left > 0 {
		t.timer.Reset(left)
		t.late()
		return
	}
	v, first := t.claim()
	if !first {
		return
	}
	close(t.ctx.done)
	why := t.cause(errSpent)
	for _, c := range t.commands {
		for _, g := range c.groups {
			g.fail(why)
		}
	}
	t.leave(v, layer.ErrFailed)
	for _, c := range t.commands {
		c.notify()
	}
	t.expired()
}

// errSpent is why a round trip ended that had no answer in time.
var errSpent = errors.New("budget spent")

// cause returns err with what kept the commands from being sent, where that is
// known.
func (t *roundTrip) cause(err error) error {
	if why := t.server.dialError(t.begin); why != nil && !t.wrote() {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

func (t *roundTrip) wrote() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.wrote > 0
}

// send sends the commands, and those again that a server did not run, for as long
// as that may help: a lone command to whatever server may run it. How they ended
// stands in the commands; an error is of all.
func (t *roundTrip) send() error {
	at, asking, commands := t.server, false, t.commands
	said := commands[0].err // where another round trip began
	for tries := 0; ; tries++ {
		var err error
		if t.router != nil && is(said, redirect|soon) {
			at, asking, err = t.router.Next(t.ctx, commands[0].groups[0].slot, at, said)
		}
		if err == nil {
			err = t.enter(at, said)
		}
		if err != nil {
			return err
		}
		seen := at.lastLoad()
		t.sendOnce(at, commands, asking)
		commands, said = t.again(commands)
		if len(commands) == 0 || !t.wait(at, said, tries) {
			return nil
		}
		if redis.HasErrorPrefix(said, "NOSCRIPT") { // mutant: script-loaded-again
			if err := at.load(t.ctx, seen); err != nil {
				for _, c := range commands {
					c.err = err
				}
				return nil
			}
		}
	}
}

// wait waits until the next try may help after a server has said so, and reports
// whether there is time for it.
func (t *roundTrip) wait(at *Server, said error, tries int) bool {
	switch {
	case poolFull(said): // nothing was sent, so for as long as an answer can come
		at.waiting.Add(1)
		defer at.waiting.Add(-1)
		return t.pause(poolPause, poolPause)
	case is(said, soon), is(said, redirect) && tries >= 3: // servers may redirect to each other
		return t.pause(time.Millisecond<<min(tries, 4), t.server.Budget/5)
	}
	return true
}

// again returns the commands to send again, and what they were answered. What
// another server may run waits for it, unless that would keep others waiting.
func (t *roundTrip) again(commands []*command) (again []*command, said error) {
	for _, c := range commands {
		if c.err == nil {
			continue
		}
		here := redis.HasErrorPrefix(c.err, "NOSCRIPT") || poolFull(c.err) // mutant: wait-for-full-pool
		if here || len(t.commands) == 1 && is(c.err, redirect|soon) {
			again, said = append(again, c), c.err
		}
	}
	return again, said
}

// pause waits before the next try, unless less than that would be left of the
// budget: a try that is cut off leaves open what the last reply has just said.
func (t *roundTrip) pause(d, left time.Duration) bool {
	return t.ctx.at-now()-d > left && sleep(t.ctx, d)
}

// sendOnce sends those of the commands that a caller waits for.
func (t *roundTrip) sendOnce(s *Server, commands []*command, asking bool) {
	var ready []redis.Cmder
	for _, c := range commands {
		if c.err = errWithdrawn; c.awaited() {
			c.prepare(t.ctx, s)
			c.first = len(ready) == 0 && !asking
			ready = append(ready, c)
		}
	}
	if len(ready) == 0 {
		return
	}
	process(t.ctx, s.view(now()), ready, asking)
	for _, r := range ready {
		c := r.(*command)
		if c.err = c.Err(); is(c.err, notRun) {
			t.markNotRun(c)
		}
	}
}

// process sends the commands in one write. Only a command's own error says whether
// it ran.
func process(ctx context.Context, c Client, commands []redis.Cmder, asking bool) {
	if len(commands) == 1 && !asking {
		_ = c.Process(ctx, commands[0])
		return
	}
	pipe := c.(interface{ Pipeline() redis.Pipeliner }).Pipeline() // a client of a cluster's node has it
	if asking {
		_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	}
	_ = pipe.BatchProcess(ctx, commands...)
	_, _ = pipe.Exec(ctx)
}

// errAgain ends a command that a hook sends again, and its connection with it:
// part of a pipeline may be on the way.
var errAgain = errors.New("sent again by a hook")

// write is called when the client writes the command. It marks the calls as sent
// and packs them, and returns why the command may not be written. What was
// written may have run, and is not written again. A command without a caller that
// waits is withdrawn, but where others stand in its pipeline it only looks: an
// error would be that of all.
func (t *roundTrip) write(c *command) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.wrote { // mutant: not-written-twice
		return errAgain
	}
	marked := make([]*wire.Call, 0, c.size)
	for _, g := range c.groups {
		if g.Calls = nil; !t.mu.over {
			marked = g.markSent(marked)
		}
	}
	c.args.Pack()
	if c.wrote = len(marked) > 0; c.wrote {
		t.mu.wrote++
		t.mu.written = now()
	} else if c.first && (len(t.commands) == 1 || t.mu.over) { // mutant: pipeline-of-left-callers
		return errWithdrawn
	}
	return nil
}

// markNotRun makes calls wait again whose command a server did not run.
func (t *roundTrip) markNotRun(c *command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.wrote && !t.mu.over {
		c.wrote = false
		t.mu.wrote--
		for _, g := range c.groups {
			g.markNotRun()
		}
	}
}

// enter asks the guard for s, and leaves the server that the round trip was at
// with what that one said, if it is another.
func (t *roundTrip) enter(s *Server, said error) error {
	t.mu.Lock()
	old, over := t.mu.visit, t.mu.over
	if old.at == s || over {
		t.mu.Unlock()
		return nil // nothing is written any more where it is over
	}
	t.mu.visit = visit{}
	t.mu.Unlock()
	t.leave(old, outcome(said))
	leave, err := s.Shared.Enter(s.node)
	if err != nil {
		s.tryIdle()
		if t.router != nil {
			t.router.Failed(s)
		}
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.over {
		go leave(layer.ErrExcused)
		return nil
	}
	t.mu.visit = visit{s, leave}
	return nil
}

// leave tells the guard of a server how the round trip ended there.
func (t *roundTrip) leave(v visit, said error) {
	if v.leave == nil {
		return
	}
	if said == layer.ErrFailed && t.excused(v.at) {
		said = layer.ErrExcused
	}
	switch {
	case said == nil:
		v.at.served.Store(int64(now()))
	case said == layer.ErrFailed && t.router != nil:
		t.router.Failed(v.at)
	}
	v.leave(said)
}

// excused reports whether the failure is not the server's. A server that answered
// others since is well: this round trip waited for our own pool, or lost its reply
// or its connection on the way, or this process was too busy to read it. One that
// began with less than half of the budget only says how long its calls were
// pending.
func (t *roundTrip) excused(at *Server) bool {
	since, over := t.begin, now() >= t.ctx.at
	if t.mu.wrote > 0 {
		since = t.mu.written
		if over {
			at.tryIdle() // other connections may be as dead as this one
		}
	}
	return at.served.Load() > int64(since) || over && t.ctx.at-t.begin < at.Budget/2 // mutant: living-server-excused
}
