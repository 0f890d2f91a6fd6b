package batch

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// load is one load of the script into a server.
type load struct {
	done chan struct{}
	err  error
}

// lastLoad returns the load that ended last. It is noted before a command is
// sent: where NOSCRIPT comes back, that one is not enough.
func (s *Server) lastLoad() *load {
	if l := s.loaded.Load(); l != nil {
		select {
		case <-l.done:
			return l
		default:
		}
	}
	return nil
}

// load loads the script, unless that has begun since the load seen: after a
// restart or a SCRIPT FLUSH every batch is answered NOSCRIPT at once, and the
// script's bytes should go over the wire once.
func (s *Server) load(ctx context.Context, seen *load) error {
	l := &load{done: make(chan struct{})}
	if s.loaded.CompareAndSwap(seen, l) { // mutant: one-load-per-flush
		go func() {
			defer close(l.done)
			l.err = s.loadOnce()
		}()
	} else {
		l = s.loaded.Load()
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loadOnce has a budget of its own: the batch that began it may end sooner.
func (s *Server) loadOnce() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Budget)
	defer cancel()
	_, err := Within(ctx, func(ctx context.Context) ([]string, error) {
		cmd := &once{*redis.NewStringCmd(ctx, "script", "load", lua.Script)}
		return nil, Process(ctx, s.view(now()), cmd)
	})
	return err
}

// poolPause is between two looks for a connection of a full pool.
const poolPause = time.Millisecond

// Process sends a command, and waits for a connection while the pool is full.
func Process(ctx context.Context, c Client, cmd redis.Cmder) error {
	for {
		if err := c.Process(ctx, cmd); !poolFull(err) || !sleep(ctx, poolPause) {
			return err
		}
	}
}
