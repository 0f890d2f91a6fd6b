// Package testclock gives Redis clients a clock that the library's script takes
// for the server's. Being internal, it can be named by the library's own tests
// alone.
package testclock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a client of one server whose script reads Now.
type Client struct {
	Processor
	Now    func() time.Time
	Caller func() time.Time // this host's clock; nil: Now
}

// Processor is a go-redis client.
type Processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Cluster is a client of a cluster whose script reads Now.
type Cluster struct {
	ClusterOptions
	Now  func() time.Time             // nil: the server's own clock
	Hook func(addr string) redis.Hook // of a node's client; nil: none
}

// ClusterOptions is a go-redis cluster client.
type ClusterOptions interface{ Options() *redis.ClusterOptions }

// Opened has standalone.New return what Open would, of options in place of a URL: with a
// dialer, where the network is simulated.
type Opened struct {
	Processor // nil
	Options   *redis.Options
	Hook      redis.Hook // of the client; nil: none
}
