package peers

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// Dial gives a subject its client, and a function that the subject calls when
// it is closed. The subject never closes the client itself, as it may be
// shared.
type Dial func() (client *redis.Client, hangUp func())

// Own gives each subject a client of its own with go-redis's defaults.
func Own(addr string) Dial {
	return func() (*redis.Client, func()) {
		c := redis.NewClient(&redis.Options{Addr: addr})
		return c, func() { _ = c.Close() }
	}
}

// Shared gives all subjects one client.
func Shared(c *redis.Client) Dial {
	return func() (*redis.Client, func()) { return c, func() {} }
}

// RedisRate is go-redis/redis_rate.
func RedisRate(dial Dial) Maker {
	return Maker{"redis_rate", Peer, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		return closing(redisRateOn(redis_rate.NewLimiter(client), l), hangUp), nil
	}}
}

// RedisRatePipelined is RedisRate on the AutoPipeline of go-redis, in its full-duplex mode. The
// commands of concurrent callers share a write, and the next one need not wait for the replies.
// Of the ways to set redis_rate up it is the fastest for more than a few callers.
func RedisRatePipelined(dial Dial) Maker {
	return Maker{"redis_rate, AutoPipeline", Peer, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		pipeline, err := client.AutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: true})
		if err != nil {
			return closing(nil, hangUp), err
		}
		return closing(redisRateOn(redis_rate.NewLimiter(pipeline), l), hangUp), nil
	}}
}

// RedisRateCluster is RedisRate on a Redis Cluster.
func RedisRateCluster(addrs []string) Maker {
	return Maker{"redis_rate", Peer, func(l Limit) (*Subject, error) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		s := redisRateOn(redis_rate.NewLimiter(client), l)
		return closing(s, func() { _ = client.Close() }), nil
	}}
}

// RedisRateThree decides three policies of a key as its users do: by three
// calls, the next only if the one before passed. A denial by the third has
// charged the first two, which Headgate's one call does not do.
func RedisRateThree(dial Dial) Maker {
	return Maker{"redis_rate", Peer, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		one := redisRateOn(redis_rate.NewLimiter(client), l)
		return closing(&Subject{Allow: thrice(one.Allow), Fill: thrice(one.Fill), Close: one.Close}, hangUp), nil
	}}
}

func thrice(call load.Call) load.Call {
	return func(ctx context.Context, key string) load.Answer {
		for _, policy := range []string{":a", ":b", ":c"} {
			if a := call(ctx, key+policy); a != load.Passed {
				return a
			}
		}
		return load.Passed
	}
}

// redisRateOn is the same for a server and a cluster. redis_rate denies with
// Allowed 0.
func redisRateOn(r *redis_rate.Limiter, l Limit) *Subject {
	limit := redis_rate.Limit{Rate: l.Rate, Period: l.Period, Burst: l.Burst}
	take := func(ctx context.Context, key string, n int) load.Answer {
		res, err := r.AllowN(ctx, key, limit, n)
		return answer(err == nil && res.Allowed > 0, err)
	}
	s := plain(func(ctx context.Context, key string) load.Answer { return take(ctx, key, 1) })
	s.Fill = func(ctx context.Context, key string) load.Answer { return take(ctx, key, l.Fill) }
	return s
}

// bare is what any limiter on Redis does at the least: read the clock, read a
// value, write it with an expiry.
const bare = `local t = redis.call('TIME')
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], t[1], 'PX', 3600000)
return 1`

// Plain sends the bare script through go-redis, one EVALSHA per call: a floor
// for what a limiter costs that does not batch.
func Plain(dial Dial) Maker {
	return Maker{"plain EVALSHA", Floor, func(Limit) (*Subject, error) {
		client, hangUp := dial()
		sha, err := client.ScriptLoad(context.Background(), bare).Result()
		s := plain(func(ctx context.Context, key string) load.Answer {
			return answer(true, client.EvalSha(ctx, sha, []string{"plain:" + key}).Err())
		})
		return closing(s, hangUp), err
	}}
}

// Rueidis sends the bare script through rueidis with its defaults, which
// pipelines the calls of many callers by itself. It shows what only a client
// can do with one EVALSHA per call, and so what merging the calls adds.
func Rueidis(addr string) Maker {
	return Maker{"rueidis EVALSHA", Floor, func(Limit) (*Subject, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			return nil, err
		}
		script := rueidis.NewLuaScript(bare)
		s := plain(func(ctx context.Context, key string) load.Answer {
			return answer(true, script.Exec(ctx, client, []string{"rueidis:" + key}, nil).Error())
		})
		return closing(s, client.Close), nil
	}}
}
