package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fresh returns a client with the settings of another one and a connection of its own.
// The connection is dialled when it is used and ends with ctx. It does not wait for the
// pool of the other, and sends without its hooks. It is nil if the other shows no
// settings. under counts the dials that have not returned, for a dialer of the user's may
// ignore its context. trips gets what the connections measure.
func Fresh(ctx context.Context, of any, under *atomic.Int64, trips *Trips) *redis.Client {
	c, ok := of.(pooled)
	if !ok {
		return nil
	}
	settings := *c.Options()
	o := Options(&settings, time.Second)
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 1, 0, 0, 0
	o.ReadTimeout, o.WriteTimeout = -1, -1
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	racerOf(o).trips = trips
	dial := o.Dialer
	o.Dialer = func(dialling context.Context, network, addr string) (net.Conn, error) {
		under.Add(1)
		defer under.Add(-1)
		dialling, cancel := context.WithCancel(dialling)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		conn, err := dial(dialling, network, addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	return redis.NewClient(o)
}
