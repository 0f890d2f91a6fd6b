package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/redis/go-redis/v9"
)

// ready is how long before the first burst the program wants to have begun.
const ready = 200 * time.Millisecond

// server is the scene on a Redis server, around the next boundary of its
// clock. A call may take a second here: what is shown is the counting.
func server(ctx context.Context, addr string) (*scene, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	now, err := client.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("redis at %s: %w", addr, err)
	}
	s := &scene{
		store:    standalone.New(client, &standalone.Options{Budget: time.Second}),
		boundary: next(now.Add(aside + ready)),
	}
	s.reach = func(ctx context.Context, t time.Time) error { return s.wait(ctx, client, t) }
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
func (s *scene) wait(ctx context.Context, client *redis.Client, t time.Time) error {
	now, err := client.Time(ctx).Result()
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
