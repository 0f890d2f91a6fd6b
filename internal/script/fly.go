package script

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Route says which server a trip goes to, and where it goes from there.
type Route interface {
	// Next names the server to ask: at first for a nil error, then for the
	// reply that said the script did not run. Asking says that the server
	// wants to be told so (ASK).
	Next(ctx context.Context, err error) (to *Server, asking bool, e error)
	// Failed is told that a server did not answer, or may not be asked.
	Failed(s *Server)
}

// Next is the server itself: there is no other.
func (s *Server) Next(context.Context, error) (*Server, bool, error) { return s, false, nil }

// Failed has nothing to do where there is no other server.
func (s *Server) Failed(*Server) {}

// fly makes the round trip, and again what a server said it did not run,
// until the deadline. Whatever happens in the client, panics of a caller's
// hooks too, ends in a result.
func (t *trip) fly(ctx context.Context, deadline time.Time) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r := result{err: errors.New("the client ended its goroutine")}
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("the client panicked: %v", p)
		}
		if r.err != nil || t.left.Load() { // else who waits settles the reply, once it has been read
			t.end(r.err)
		}
		t.done <- r
	}()
	r = t.tries(ctx)
}

// tries is the loop of fly.
func (t *trip) tries(ctx context.Context) result {
	var last error
	hops := 0
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) {
		s, asking, err := t.route.Next(ctx, last)
		if err == nil {
			err = t.move(s, last)
		}
		if err != nil {
			return result{err: err}
		}
		seen := s.loader.generation()
		reply, err := t.send(ctx, s, asking)
		switch {
		case err == nil:
			return result{reply: reply}
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			if err := s.load(ctx, seen); err != nil {
				return result{err: err}
			}
			// Asked again with what sent it here: a slot on the move is asked for anew.
			continue
		case t.state.Load() == waiting && hasPrefix(err, redirects) && ctx.Err() == nil:
			last = err
			// Nodes that point at each other are left alone for a moment.
			if hops++; hops > 3 && !t.again(ctx, pause) {
				return result{err: err}
			}
		case t.state.Load() == waiting && hasPrefix(err, soon) && t.again(ctx, pause):
			last = err
		default:
			return result{err: err}
		}
	}
}

// move leaves the server that the trip is at for s, if s is another.
func (t *trip) move(s *Server, last error) error {
	if stay := t.visit.Load(); stay != nil && stay.server != s {
		t.settle(verdict(last))
	}
	return t.enter(s)
}

// again waits before the next try, unless the budget is nearly spent: a try
// that is cut off leaves open what this reply has just said.
func (t *trip) again(ctx context.Context, pause time.Duration) bool {
	end, _ := ctx.Deadline()
	return time.Until(end)-pause > t.budget/5 && wait(ctx, pause)
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

// pipeliner is a client that can send ASKING right before the command.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// send sends the command once. A reply that says it did not run makes the
// trip a waiting one again.
func (t *trip) send(ctx context.Context, s *Server, asking bool) (string, error) {
	cmd := once{redis.NewCmd(ctx, t.args(s)...)}
	cmd.SetFirstKeyPos(3)
	if err := s.process(ctx, cmd, asking); err != nil {
		if hasPrefix(err, notServed) {
			t.state.CompareAndSwap(sent, waiting)
		}
		return "", err
	}
	return cmd.Text()
}

func (s *Server) process(ctx context.Context, cmd redis.Cmder, asking bool) error {
	p, ok := s.client.(pipeliner)
	if !asking || !ok {
		return s.client.Process(ctx, cmd)
	}
	pipe := p.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	_ = pipe.Process(ctx, cmd)
	_, _ = pipe.Exec(ctx) // whose error may be ASKING's; only the command's own says whether it ran
	return cmd.Err()
}
