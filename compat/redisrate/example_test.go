package redisrate_test

import (
	"context"
	"fmt"

	redis_rate "github.com/headgate-go/headgate/compat/redisrate"
	"github.com/redis/go-redis/v9"
)

// It has no Output, so it is only compiled: it would need a server.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiter := redis_rate.NewLimiter(rdb)
	res, err := limiter.Allow(ctx, "project:123", redis_rate.PerSecond(10))
	if err != nil {
		panic(err)
	}
	fmt.Println("allowed", res.Allowed, "remaining", res.Remaining)
}
