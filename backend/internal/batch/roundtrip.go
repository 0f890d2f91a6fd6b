package batch

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/invariant"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/redis/go-redis/v9"
)

// A round trip sends the commands of one batch and answers its calls. Its steps:
//
//	run ─► start ─► send ─► claim ─► finish ─► end
//	                 │        ▲
//	                 │       ring at the deadline
//	                 └─ enter ─► sendOnce ─► again, if a server did not run it
//
//   - start makes the commands: one for a server, one per group on a cluster.
//   - send passes the guard of the node (enter), writes all commands at once (sendOnce),
//     and repeats those that the server's reply says it did not run (again): no script,
//     a redirect, a full pool, a connection that was lost before the write.
//   - claim decides who ends the round trip: the goroutine that sent it, or ring, its
//     timer, at the deadline. The first one answers the calls.
//   - finish reads the replies. Groups that another server may run continue in a round
//     trip of their own (forward).
//   - end reports the outcome to the guard, then notifies the callers.
//
//   - A command that was written may have run. It is written again only if a reply shows
//     that it did not run: write refuses a second time, whatever hooks and the client do.
//   - Each call is answered once, at the deadline at the latest. The client may take
//     longer. Then the round trip keeps its buffers and is not used again.
//   - mu is not held while the client sends. The client calls write, which locks it.

// roundTrip is a batch's round trip: it sends commands to a server, and once more what
// that replied it did not run. Each call has its answer at the deadline; the
// client may take longer, but no caller waits for it.
type roundTrip struct {
	batch
	queue       *Queue
	made        []*command            // for this batch and earlier ones
	commands    []*command            // those of this batch
	said        error                 // what the batch was answered before, in another round trip
	began       time.Duration         // as now
	failed      bool                  // it had no answer
	placed      bool                  // it holds a place; guarded by the queue's lock
	outstanding bool                  // it counts as in flight; likewise
	held        atomic.Pointer[error] // why it is not sent yet; nil: it may be, or was

	mu struct {
		sync.Mutex
		over    bool          // the calls have their answers, or are about to
		timer   *time.Timer   // of the time when it is overdue, then of the deadline
		rings   time.Duration // when that should ring, as now
		ends    time.Duration // the deadline, as now
		late    bool          // this process had no processor for a while, and the deadline has moved
		visit   visit
		wrote   int           // commands that were written, and not replied to be not run
		written time.Duration // when the last one was, as now
	}
}

// visit is the guard's leave to send to a server. The zero visit is none.
type visit struct {
	at    *Server
	leave func(error) // is called once, with what the round trip shows of the server
}

// start makes the commands: one on one server, one per group on a cluster and behind an
// address that leads to one.
func (t *roundTrip) start(late time.Duration) {
	n := 1
	if t.queue.router != nil || t.queue.server.Splits() {
		n = len(t.groups)
	}
	for len(t.made) < n {
		t.made = append(t.made, &command{write: t.write})
	}
	t.commands = t.made[:n]
	for i, c := range t.commands {
		c.groups = t.groups[i*len(t.groups)/n : (i+1)*len(t.groups)/n]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = now()
	t.mu.ends, t.mu.over, t.mu.late, t.mu.wrote = Deadline(t.first, t.queue.server.Budget), false, false, 0
	t.held.Store(nil)
	t.mu.rings = min(t.began+late, t.mu.ends)
	t.mu.timer = time.AfterFunc(t.mu.rings-t.began, t.ring)
}

// run makes the round trip, on the calling goroutine. After the time late it is
// overdue. took is the time from the last write to the answer, 0 where none came.
// A round trip that its deadline has ended is not ok.
func (t *roundTrip) run(late time.Duration) (took time.Duration, ok bool) {
	if t.failed = false; len(t.groups) == 0 {
		return 0, true
	}
	t.start(late)
	ctx, cancel := withOwnTime(t.queue.server.client, t.queue.server.Budget, t.replyBy)
	defer cancel()
	err := client.Guarded(func() error { return t.send(ctx) })
	v, ok := t.claim(false)
	if t.failed = !ok; !ok {
		t.late(v.at, err)
		return 0, false
	}
	said := t.finish(err)
	t.failed = errors.Is(said, layer.ErrFailed)
	if t.mu.wrote > 0 && !t.failed { // it is over: nothing changes these any more
		took = max(now()-t.mu.written, 1)
	}
	t.end(v, said)
	return took, true
}

// finish reads the answers and returns what they show of the server: a failure, else an
// answer. What another server may run goes on in a round trip of its own, and the others
// don't wait for it.
func (t *roundTrip) finish(err error) (said error) {
	said = layer.ErrExcused
	for _, c := range t.commands {
		if err != nil { // of the guard, or a panic: it is of all commands
			c.SetErr(err)
		}
		//mutant:time-named
		if e := c.Err(); now() >= t.ends() && (errors.Is(e, context.DeadlineExceeded) || errors.Is(e, os.ErrDeadlineExceeded)) {
			c.SetErr(t.spent())
		}
		//mutant:reply-hidden
		c.SetErr(without.Password(client.Untimed(c.Err())))
		c.learn()
		//mutant:split-sent-again
		if len(t.commands) > 1 && is(c.Err(), redirect|soon) || len(c.groups) > 1 && is(c.Err(), split) {
			t.forward(c, true)
			continue
		}
		if c.Err() == nil {
			c.SetErr(c.args.Read(c.Val()))
		}
		if c.Err() != nil {
			for _, g := range c.groups {
				g.fail(c.Err(), false)
			}
		}
		t.forward(c, false)
		if o := outcome(c.Err()); o == nil && said == layer.ErrExcused || errors.Is(o, layer.ErrFailed) {
			said = o
		}
	}
	return said
}

// forward has groups of a command that were not run go on in a round trip of their own.
// That one begins with what they were answered. These are all, or those that the script
// wants with other boundaries. Those that were run don't wait for it.
func (t *roundTrip) forward(c *command, all bool) {
	run, others := c.groups[:0], []*group(nil)
	for _, g := range c.groups {
		//mutant:malformed-not-sent-again
		if !all && (!g.Again || c.Err() != nil) {
			run = append(run, g)
			continue
		}
		g.Again = false
		g.markNotRun()
		others = append(others, g)
	}
	if c.groups = run; others == nil {
		return
	}
	next := t.queue.ended.Get().(*roundTrip)
	next.groups, next.first, next.said = append(next.groups[:0], others...), t.first, c.Err()
	go next.run(time.Minute)
}

// send sends the commands, and those again that a server did not run, for as long
// as that may help. It sends a lone command to whatever server may run it. How they ended
// stands in the commands; an error is of all.
func (t *roundTrip) send(ctx context.Context) (err error) {
	at, asking, commands, said := t.queue.server, false, t.commands, t.said
	for tries := 0; ; tries++ {
		if r := t.queue.router; r != nil && is(said, redirect|soon) {
			if at, asking, err = r.Next(ctx, commands[0].groups[0].Tag, at, said); err != nil {
				return err
			}
		}
		if err = t.admitted(at); err != nil {
			return err
		}
		if err := at.begin(t.ends, t.hold); err != nil {
			return err
		}
		seen := at.loads.Load()
		t.sendOnce(ctx, at, commands, asking)
		t.note(at, commands)
		commands, said = t.again(commands)
		if len(commands) == 0 || !t.wait(said, tries) {
			return nil
		}
		//mutant:script-loaded-again
		if is(said, reload) {
			if err := at.load(seen); err != nil {
				for _, c := range commands {
					c.SetErr(err)
				}
				return nil
			}
		}
	}
}

// admitted returns nil once the guard lets the round trip through. While another one is the
// trial, it waits. On a starved host it waits until its deadline for a trial as well.
func (t *roundTrip) admitted(at *Server) (err error) {
	for looks := 0; ; looks++ {
		if err = t.enter(at); err == nil || now() >= t.ends() {
			return err
		}
		//mutant:calls-wait-for-trial
		if !errors.Is(err, layer.ErrTrial) {
			at.listen()
			if t.queue.router != nil {
				t.queue.router.Failed()
			}
			//mutant:refused-batch-waits-for-processor
			if !starved.Host() {
				return err
			}
			t.hold(err)
		}
		client.Sleep(looks) // the trial ends within its own budget
	}
}

// enter asks the guard for s, and leaves the server of the last try. That try reports
// nothing of the server, since the next one will.
func (t *roundTrip) enter(s *Server) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.over {
		return t.spent()
	}
	if t.mu.visit.leave != nil {
		t.mu.visit.leave(layer.ErrExcused)
	}
	leave, err := s.Shared.Enter(s.Node)
	if err != nil && !errors.Is(err, layer.ErrTrial) {
		//mutant:refused-without-a-batch
		s.shut.Store(&err)
	}
	t.mu.visit = visit{s, leave}
	return err
}

// again returns the commands to send again, and what they were answered. Only a
// command's own error says whether it ran. What another server may run waits for it,
// unless that would keep others waiting.
func (t *roundTrip) again(commands []*command) (again []*command, said error) {
	for _, c := range commands {
		if c.Err() == nil {
			continue
		}
		if is(c.Err(), notRun) {
			t.markNotRun(c)
		}
		//mutant:wait-for-full-pool
		here := is(c.Err(), reload) || client.PoolFull(c.Err()) || errors.As(c.Err(), new(unreachable)) || t.unwritten(c) && lost(c.Err())
		if here || len(t.commands) == 1 && is(c.Err(), redirect|soon) {
			again, said = append(again, c), c.Err()
		}
	}
	return again, said
}

// wait waits until the next try may help after a server has said so, and reports
// whether there is time for it. A try that is cut off leaves open what the last
// reply has just said.
func (t *roundTrip) wait(said error, tries int) bool {
	pause, left := client.Pause, client.Pause               // nothing was sent, so for as long as an answer can come
	if is(said, soon) || is(said, redirect) && tries >= 3 { // servers may redirect to each other
		pause, left = time.Millisecond<<min(tries, 4), t.queue.server.Budget/5
	} else if !client.PoolFull(said) {
		return true
	}
	inTime := t.ends()-now()-pause > left
	if inTime {
		time.Sleep(pause)
	}
	return inTime
}

// sendOnce sends the commands in one write.
func (t *roundTrip) sendOnce(ctx context.Context, s *Server, commands []*command, asking bool) {
	defer func() { s.begins.returned(commands[0].Err()) }()
	for i, c := range commands {
		c.prepare(ctx, s, i == 0 && !asking)
	}
	if c := s.Client(); len(commands) == 1 && !asking {
		_ = c.Process(ctx, commands[0])
	} else {
		pipe := c.(interface{ Pipeline() redis.Pipeliner }).Pipeline() // a client of a cluster's node has it
		if asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
		for _, c := range commands {
			_ = pipe.Process(ctx, c)
		}
		_, _ = pipe.Exec(ctx)
	}
}

// errAgain ends a command that a hook sends again, and its connection with it:
// part of a pipeline may be on the way.
var errAgain = errors.New("sent again by a hook, or too late")

// write is called when the client writes the command. It marks the calls as sent
// and packs them, and returns why the command may not be written. What was
// written may have run, and is not written again. A command without a caller that
// waits is withdrawn, but where others stand in its pipeline it only looks. An error
// would be that of all.
func (t *roundTrip) write(c *command) error {
	c.at.begins.ready()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	//mutant:not-written-twice
	case c.wrote || t.mu.over && !c.first:
		return errAgain
	case t.mu.over:
		return errWithdrawn
	}
	if c.first {
		if err := c.at.inTime(t.mu.ends - now()); err != nil {
			return err
		}
	}
	for _, g := range c.groups {
		if g.markSent() {
			c.wrote = true
		}
	}
	if c.wrote {
		t.held.Store(nil)
		t.mu.wrote++
		if invariant.Checked {
			invariant.Holds(t.mu.wrote <= len(t.commands), "a command that may have run is written once")
		}
		t.mu.written = now()
		c.at.sent.Store(int64(t.mu.written))
		//mutant:pipeline-of-left-callers
	} else if c.first && len(t.commands) == 1 {
		return errWithdrawn
	}
	c.args.Pack()
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

// end reports the outcome to the server's guard, and then notifies the callers.
func (t *roundTrip) end(v visit, said error) {
	if v.leave != nil {
		t.leave(v, said)
	}
	for _, c := range t.commands {
		for _, g := range c.groups {
			g.notify()
		}
	}
}
