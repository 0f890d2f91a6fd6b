// Package script runs the Lua rendering on Redis servers: it packs groups of
// calls, sends one EVALSHA, and reads the answers. It charges a call at most
// once, whatever the client's settings and whatever is lost on the way.
package script

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/redis/go-redis/v9"
)

// Client is what a Server needs of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Server is one Redis server that runs the script. It is safe for
// concurrent use.
type Server struct {
	client Client
	node   string // names its circuit
	hub    *backend.Hub
	budget time.Duration    // of a load of the script
	now    func() time.Time // nil in production: the server's own clock
	loader loader
	served atomic.Int64 // when it last did, in Unix nanoseconds
}

// NewServer returns the server behind client. It does no I/O. Its round trips
// are guarded by hub's guard, under the name node.
func NewServer(client Client, node string, hub *backend.Hub, budget time.Duration) *Server {
	s := &Server{client: client, node: node, hub: hub, budget: budget}
	if v, ok := client.(Virtual); ok {
		s.now = v.Now
	}
	return s
}

// Node returns the name that the server was made with.
func (s *Server) Node() string { return s.node }

// busy reports whether all the connections that the client may have are out,
// and the server has served since.
func (s *Server) busy(since time.Time) bool {
	return s.served.Load() > since.UnixNano() && s.full()
}

func (s *Server) full() bool {
	c, ok := s.client.(interface {
		PoolStats() *redis.PoolStats
		Options() *redis.Options
	})
	if !ok {
		return false
	}
	p := c.PoolStats()
	return int(p.TotalConns-p.IdleConns) >= c.Options().PoolSize
}

// Run decides the groups on this server; see Run.
func (s *Server) Run(ctx context.Context, groups []*Group) error {
	return Run(ctx, s, s.budget, groups)
}

// Decide decides one request, which its store has checked, on the state that
// lies at hash.
func Decide(ctx context.Context, route Route, budget time.Duration, hash string, r backend.Request) (backend.Decision, error) {
	g := &Group{Op: r.Op, Key: r.Key, Hash: hash, Policies: r.Policies, Takes: []Take{{Group: r.Group}}}
	err := Run(ctx, route, budget, []*Group{g})
	if err == nil {
		err = g.Takes[0].Err
	}
	if err != nil {
		r.Unknown(err)
		return backend.Decision{}, err
	}
	return g.Takes[0].Decision, nil
}

// Virtual is a client with a clock that the script takes for the server's.
// Only the library's own tests can name it.
type Virtual struct {
	Client
	Now func() time.Time
}

// clock is the script's first argument.
func (s *Server) clock() string {
	if s.now == nil {
		return ""
	}
	return strconv.FormatInt(s.now().UnixMicro(), 10)
}

// once is a command that go-redis must not send again by itself. It re-sends
// a timed-out EVALSHA three times, and the caller sees no error.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis so.
func (once) NoRetry() bool { return true }

// VirtualCluster is the same for the client of a cluster.
type VirtualCluster struct {
	ClusterOptions interface{ Options() *redis.ClusterOptions }
	Now            func() time.Time
}

// Options are the client's.
func (v VirtualCluster) Options() *redis.ClusterOptions { return v.ClusterOptions.Options() }
