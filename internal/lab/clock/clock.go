// Package clock gives Redis clients clocks of their own: the script reads them in
// place of the server's. A store recognizes such a client by its methods, so that only
// tests import this package.
package clock

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
type Processor = interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Clocks returns the client that sends, and its clocks.
func (c Client) Clocks() (sends Processor, server, caller func() time.Time) {
	if c.Caller == nil {
		c.Caller = c.Now
	}
	return c.Processor, c.Now, c.Caller
}

// Cluster is a client of a cluster whose script reads Now.
type Cluster struct {
	ClusterOptions
	Now func() time.Time // nil: the server's own clock
}

// ClusterOptions is a go-redis cluster client.
type ClusterOptions interface{ Options() *redis.ClusterOptions }

// Clock returns the clock.
func (c Cluster) Clock() func() time.Time { return c.Now }
