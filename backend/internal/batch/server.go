package batch

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/testclock"
	"github.com/redis/go-redis/v9"
)

// Client is what a Server needs of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Settings are what all servers of a store have in common.
type Settings struct {
	Prefix          wire.Prefix
	Budget          time.Duration // maximum duration of a decision
	Shared          *layer.Shared // its guard is asked before every round trip
	DisableBatching bool          // every call makes a round trip of its own
}

// Defaults fills in what was left out.
func (s *Settings) Defaults(budget time.Duration) {
	if s.Prefix == "" {
		s.Prefix = wire.DefaultPrefix
	}
	if s.Budget == 0 {
		s.Budget = budget
	}
}

// Check refuses settings out of range.
func (s *Settings) Check() error {
	if s.Budget < time.Millisecond || s.Budget > time.Minute {
		return &backend.InvalidError{What: "budget", Value: s.Budget, Want: "1ms to 1m0s"}
	}
	return s.Prefix.Check()
}

// Server is one Redis server that runs the script. It is safe for concurrent
// use. Its instants are as now.
type Server struct {
	Settings
	client Client
	node   string           // names its circuit
	clock  func() time.Time // nil in production: the server's own

	loaded  atomic.Pointer[load] // the last load of the script that has begun
	bounded atomic.Pointer[view]
	served  atomic.Int64 // when a round trip last ended well
	tried   atomic.Int64 // when the idle connections were last tried
	waiting atomic.Int64 // batches that wait for a connection
	dialled atomic.Pointer[trial]
}

// NewServer returns the server behind client. It does no I/O. Its circuit has
// the name node.
func NewServer(client Client, node string, set Settings) *Server {
	s := &Server{Settings: set, client: client, node: node}
	if c, ok := client.(testclock.Client); ok {
		s.client, s.clock = c.Processor, c.Now
	}
	return s
}

// Node returns the name that the server was made with.
func (s *Server) Node() string { return s.node }

// time is the script's first argument.
func (s *Server) time() string {
	if s.clock == nil {
		return ""
	}
	return strconv.FormatInt(s.clock().UnixMicro(), 10)
}
