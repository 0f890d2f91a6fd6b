package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/redis/go-redis/v9"
)

const (
	// ready is how long before the first burst the program wants to have begun.
	ready = 200 * time.Millisecond
	// budget is a second: what is shown is the counting, not how long it takes.
	budget = time.Second
)

// server is the scene on a Redis server.
func server(ctx context.Context, addr string) (*scene, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store := standalone.New(client, &standalone.Options{Budget: budget})
	return live(ctx, store, client, fresh())
}

// nodes is the scene on a Redis Cluster. Its clock is that of the key's node,
// by which the counts go.
func nodes(ctx context.Context, addrs []string) (*scene, error) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	key := fresh()
	node, err := client.MasterForKey(ctx, "headgate:{"+key+"}")
	if err != nil {
		return nil, fmt.Errorf("cluster at %v: %w", addrs, err)
	}
	return live(ctx, cluster.New(client, &cluster.Options{Budget: budget}), node, key)
}

// live is the scene on a store in real time, around the next boundary of the
// server's clock.
func live(ctx context.Context, store backend.Store, clock *redis.Client, key string) (*scene, error) {
	now, err := clock.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("redis at %s: %w", clock.Options().Addr, err)
	}
	s := &scene{store: store, key: key, boundary: next(now.Add(distance + ready))}
	s.reach = func(ctx context.Context, t time.Time) error { return s.wait(ctx, clock, t) }
	return s, nil
}

// next returns the first boundary after t: windows are whole multiples of
// their length in Unix time.
func next(t time.Time) time.Time {
	us := window.Microseconds()
	return time.UnixMicro(t.UnixMicro() - t.UnixMicro()%us + us).UTC()
}

// wait returns when the server's clock shows t. The second wait begins when
// the first burst is over, which must have been before the boundary.
func (s *scene) wait(ctx context.Context, clock *redis.Client, t time.Time) error {
	now, err := clock.Time(ctx).Result()
	if err != nil {
		return err
	}
	if t.After(s.boundary) && !now.Before(s.boundary) {
		return errors.New("the first burst took until after the boundary: nothing to see, run it nearer to the server")
	}
	select {
	case <-time.After(t.Sub(now)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
