package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// flyJoint sends all groups in one EVALSHA. err is the reply that sent the trip
// on its way, nil at first.
func (t *Trip) flyJoint(err error) End {
	reply, err := t.guarded(func() (string, error) { return t.tries(err) })
	at, leave, first := t.claim()
	if !first {
		return End{Expired: true}
	}
	if err == nil {
		err = answer(reply, t.joint.groups, t.Server.prefix)
	}
	if err != nil {
		for _, g := range t.Groups() {
			g.fail(err)
		}
	}
	return t.settle(at, leave, err)
}

// guarded makes an error of whatever happens in a client: a panic of a
// caller's hook, too. A hook that ends the goroutine ends the trip by its
// deadline.
func (t *Trip) guarded(f func() (string, error)) (reply string, err error) {
	defer func() {
		if p := recover(); p != nil { // mutant: client-panics
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	return f()
}

// tries sends the groups until a server serves them. last is the reply that
// sent them here: nil at first.
func (t *Trip) tries(last error) (reply string, err error) {
	hops, at := 0, t.Server
	pause := time.Millisecond
	for err = last; ; {
		switch {
		case err == nil:
		case hasPrefix(err, redirects) && t.ctx.Err() == nil:
			// Nodes that point at each other are left alone for a moment.
			if hops++; hops > 3 && !t.again(&pause) {
				return "", err
			}
		case poolFull(err): // mutant: wait-for-full-pool
			if !t.waitForPool(at) {
				return "", err
			}
			err = nil
		case !hasPrefix(err, soon) || !t.again(&pause):
			return "", err
		}
		last = err
		s, asking, e := t.Ways.Next(t.ctx, t.groups[0].Slot, at, last)
		if e == nil {
			e = t.enter(s, last)
		}
		if e != nil {
			return "", e
		}
		if reply, err = t.ask(s, asking); err == nil {
			return reply, nil
		}
		at = s
	}
}

// ask sends the groups to s, and again if it did not have the script.
func (t *Trip) ask(s *Server, asking bool) (reply string, err error) {
	for {
		seen := s.loader.generation()
		reply, err = t.send(s, asking)
		if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") { // mutant: script-loaded-again
			return reply, err
		}
		if err := s.load(t.ctx, seen); err != nil {
			return "", err
		}
	}
}

// again waits before the next try, unless the budget is nearly spent: a try
// that is cut off leaves open what this reply has just said.
func (t *Trip) again(pause *time.Duration) bool {
	p := *pause
	*pause = min(2*p, 16*time.Millisecond)
	return t.Deadline-Now()-p > t.Server.budget/5 && wait(t.ctx, p)
}

// poolPause is between two looks for a connection of a full pool.
const poolPause = time.Millisecond

// poolFull reports whether the client had no connection for a command.
func poolFull(err error) bool {
	return errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrPoolTimeout)
}

// waitForPool waits before the next look for a connection. Nothing was sent, so
// it may wait for as long as an answer can still come.
func (t *Trip) waitForPool(s *Server) bool {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	return t.Deadline-Now() > 2*poolPause && wait(t.ctx, poolPause)
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pipeliner is a client that can send several commands in one write.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// send sends the groups that someone waits for in one command, once.
func (t *Trip) send(s *Server, asking bool) (string, error) {
	c := &t.joint
	c.trip, c.groups, c.follow, c.shared = t, t.awaited(c.groups[:0], t.Groups()), asking, false
	if len(c.groups) == 0 {
		return "", errWithdrawn
	}
	c.ready(t.ctx, s)
	if err := process(t.ctx, s.bounded(Now()), c, asking); err != nil {
		if hasPrefix(err, notServed) {
			t.notRun(c)
		}
		return "", err
	}
	return c.Val(), nil
}
func process(ctx context.Context, c Client, cmd redis.Cmder, asking bool) error {
	p, ok := c.(pipeliner)
	if !asking || !ok {
		return c.Process(ctx, cmd)
	}
	pipe := p.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx) // whose error may be ASKING's; only the command's own says whether it ran
	return cmd.Err()
}

// processAll sends a command per group. Their outcomes lie in the commands.
func processAll(ctx context.Context, c Client, groups []*Group) {
	p, ok := c.(pipeliner)
	if !ok || len(groups) == 1 {
		for _, g := range groups {
			g.cmd.follow, g.cmd.shared = false, false
			_ = c.Process(ctx, &g.cmd)
		}
		return
	}
	pipe := p.Pipeline()
	for _, g := range groups {
		_ = pipe.Process(ctx, &g.cmd)
	}
	_, _ = pipe.Exec(ctx)
}
