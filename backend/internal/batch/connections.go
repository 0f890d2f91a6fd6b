package batch

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// view sends on the user's connections and through the user's hooks, with
// deadlines of our own. The client's settings stay as they are: by go-redis'
// defaults a lost reply holds its connection for three seconds, whatever the
// context says.
type view struct {
	*redis.Conn               // has the hooks that the client had when it was made
	made        time.Duration // as now
}

// renewal is how long a view is used. A hook that is added to the client later is
// in the next one.
const renewal = time.Second

// newView returns a view of a client. WithTimeout alone would leave the hooks out,
// and Conn alone would keep the client's timeouts.
func newView(user *redis.Client, budget, at time.Duration) *view {
	bounded := user.WithTimeout(budget)
	bounded.Options().ContextTimeoutEnabled = true // an option of its own
	conn := user.Conn()                            // takes no connection before its first command
	conn.AddHook(through{bounded})                 // mutant: connection-deadlines
	return &view{conn, at}
}

// through is the innermost hook of a view, which sends.
type through struct{ client *redis.Client }

func (t through) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t through) ProcessHook(redis.ProcessHook) redis.ProcessHook { return t.client.Process }

func (t through) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p := t.client.Pipeline()
		if err := p.BatchProcess(ctx, cmds...); err != nil {
			return err
		}
		_, err := p.Exec(ctx)
		return err
	}
}

// view returns the client to send with. One that is not of go-redis' own make
// has to keep the deadline of a context by itself.
func (s *Server) view(at time.Duration) Client {
	user, ok := s.client.(*redis.Client)
	if !ok {
		return s.client
	}
	v := s.bounded.Load()
	if v == nil || at-v.made > renewal {
		v = newView(user, s.Budget, at)
		s.bounded.Store(v)
	}
	return v
}

// pooled is a client that tells of its connections.
type pooled interface {
	PoolStats() *redis.PoolStats
	Options() *redis.Options
}

// unpooled is how many commands a client may send at once that tells nothing of
// its connections.
const unpooled = 64

// poolSize returns how many connections the client may have, as far as it tells.
func (s *Server) poolSize() int {
	if c, ok := s.client.(pooled); ok {
		return c.Options().PoolSize
	}
	return unpooled
}

// connections returns how many connections batches may use, ours of which are in
// use or about to be. A pool without MaxActiveConns hands its connections out in
// turn, so the application's commands take their part by waiting. One with it
// refuses at once, so what the application uses is left out.
func (s *Server) connections(ours int) int {
	c, ok := s.client.(pooled)
	if !ok || c.Options().MaxActiveConns <= 0 {
		return s.poolSize()
	}
	p := c.PoolStats()
	used := int(p.TotalConns-p.IdleConns) - (ours - int(s.waiting.Load()))
	return min(s.poolSize(), c.Options().MaxActiveConns-max(used, 0))
}

// tryIdle tries all idle connections at once, and so closes the dead ones. After
// a load balancer has forgotten its connections each is dead and silent: the
// trial of an open circuit would meet the next one, once per second.
func (s *Server) tryIdle() {
	c, ok := s.client.(pooled)
	at, last := now(), s.tried.Load()
	if !ok || at-time.Duration(last) < s.Budget || !s.tried.CompareAndSwap(last, int64(at)) {
		return
	}
	on := s.view(at)
	for range c.PoolStats().IdleConns { // mutant: idle-connections-tried
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.Budget)
			defer cancel()
			_ = guarded(func() error { return on.Process(ctx, &once{*redis.NewStringCmd(ctx, "ping")}) })
		}()
	}
}

// trial is how a connection ended that was made to learn why others can't be.
type trial struct {
	at  time.Duration // as now
	err error
}

// tryDial connects to the server and stores the error. go-redis tries again
// several times before it tells why it can't connect, for longer than a budget.
func (s *Server) tryDial() {
	c, ok := s.client.(pooled)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Budget)
	defer cancel()
	o := c.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err == nil {
		_ = conn.Close()
	} else if !errors.Is(err, context.DeadlineExceeded) {
		s.dialled.Store(&trial{now(), err})
	}
}

// dialError returns why connections could not be made since then, nil where that
// is not known.
func (s *Server) dialError(since time.Duration) error {
	if d := s.dialled.Load(); d != nil && d.at > since {
		return d.err
	}
	return nil
}
