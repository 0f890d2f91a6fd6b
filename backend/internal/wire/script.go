// Package wire runs the Lua rendering on Redis servers: it packs groups of
// calls, sends one EVALSHA, and reads the answers. It charges a call at most
// once, whatever the client's settings and whatever is lost on the way.
package wire

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/testclock"

	"github.com/headgate-go/headgate/backend"
	"github.com/redis/go-redis/v9"
)

// Client is what a Server needs of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Settings are what all servers of a store have in common.
type Settings struct {
	Prefix Prefix
	Budget time.Duration // maximum duration of a decision
	Shared *layer.Shared // its guard is asked before every round trip
}

// Defaults fills in what was left out.
func (s *Settings) Defaults(budget time.Duration) {
	if s.Prefix == "" {
		s.Prefix = DefaultPrefix
	}
	if s.Budget == 0 {
		s.Budget = budget
	}
}

// Check refuses what can't be kept.
func (s *Settings) Check() error {
	if s.Budget < time.Millisecond || s.Budget > time.Minute {
		return &backend.InvalidError{What: "budget", Value: s.Budget, Want: "1ms to 1m0s"}
	}
	return s.Prefix.Check()
}

// Server is one Redis server that runs the script. It is safe for
// concurrent use.
type Server struct {
	client Client
	view   atomic.Pointer[view]
	node   string // names its circuit
	shared *layer.Shared
	prefix Prefix
	budget time.Duration
	now    func() time.Time // nil in production: the server's own clock
	loader loader

	served  atomic.Int64 // when it last did, as Now
	tried   atomic.Int64 // when its idle connections were last tried, as Now
	waiting atomic.Int64 // trips that wait for a connection
	dialed  atomic.Pointer[dialed]
}

// NewServer returns the server behind client. It does no I/O. Its circuit has
// the name node.
func NewServer(client Client, node string, set Settings) *Server {
	s := &Server{client: client, node: node, shared: set.Shared, prefix: set.Prefix, budget: set.Budget}
	if v, ok := client.(testclock.Client); ok {
		s.client, s.now = v.Processor, v.Now
	}
	return s
}

// Answered reports a round trip that was answered to the store's observers.
func (s *Server) Answered(calls, keys int, took time.Duration) {
	s.shared.Batch(backend.Batch{Node: s.node, Calls: calls, Keys: keys}, took)
}

// Node returns the name that the server was made with.
func (s *Server) Node() string { return s.node }

// clock is the script's first argument.
func (s *Server) clock() string {
	if s.now == nil {
		return ""
	}
	return strconv.FormatInt(s.now().UnixMicro(), 10)
}
