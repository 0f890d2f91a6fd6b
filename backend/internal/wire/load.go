package wire

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// loader loads the script into one server, once for all callers: after a
// restart or a SCRIPT FLUSH everyone hears NOSCRIPT at once, and the script's
// bytes should go over the wire once.
type loader struct {
	mu struct {
		sync.Mutex
		generation int   // how often it was loaded
		flight     *load // under way, or nil
	}
}

type load struct {
	done chan struct{}
	err  error
}

// generation is noted before a command is sent. A NOSCRIPT that comes back
// after the generation has moved on was answered by a load already.
func (l *loader) generation() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.generation
}

// load sees to it that the script was loaded after generation seen.
func (s *Server) load(ctx context.Context, seen int) error {
	f := s.join(ctx, seen)
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join returns the load to wait for, and begins it where there is none; nil
// where the script was loaded since.
func (s *Server) join(ctx context.Context, seen int) *load {
	l := &s.loader
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.generation != seen { // mutant: one-load-per-flush
		return nil
	}
	if l.mu.flight == nil {
		l.mu.flight = &load{done: make(chan struct{})}
		go s.fetch(ctx, l.mu.flight)
	}
	return l.mu.flight
}

// fetch runs under a budget of its own: whoever began it may be gone sooner.
func (s *Server) fetch(ctx context.Context, f *load) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // a hook of the user's
				done <- fmt.Errorf("the client panicked: %v", p)
			}
		}()
		done <- Process(ctx, s.bounded(Now()), &reusable{*redis.NewStringCmd(ctx, "script", "load", lua.Script)})
	}()
	select {
	case f.err = <-done:
	case <-ctx.Done(): // a client may not heed it, and to load twice is to load once; mutant: load-within-budget
		f.err = ctx.Err()
	}
	s.landed(f)
}

func (s *Server) landed(f *load) {
	l := &s.loader
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.flight = nil
	if f.err == nil {
		l.mu.generation++
	}
	close(f.done)
}
