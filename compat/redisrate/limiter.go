package redisrate

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/redis/go-redis/v9"
)

// Limiter limits the rate of events per key. Make one with NewLimiter and share
// it: it is safe for concurrent use.
type Limiter struct {
	store   backend.Store
	limiter *headgate.Limiter
	exact   *headgate.Limiter // on the same counts; its denials are never from memory
	err     error             // what was wrong with NewLimiter's argument
}

// Client is what a limiter needs of a go-redis client: a *redis.Client, also for
// Sentinel, or a *redis.ClusterClient.
type Client = standalone.Client

// NewLimiter returns a limiter that counts where rdb stores. It does no I/O. A
// client that can't be used is an error of each call.
func NewLimiter(rdb Client) *Limiter {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		if c == nil {
			return newLimiter(cluster.New(c, nil))
		}
		return newLimiter(cluster.New(c, &cluster.Options{Budget: budget(c.Options().ReadTimeout)}))
	case *redis.Client:
		if c != nil {
			return newLimiter(standalone.New(c, &standalone.Options{Budget: budget(c.Options().ReadTimeout)}))
		}
	case *redis.Ring:
		return &Limiter{err: errRing}
	}
	return newLimiter(standalone.New(rdb, &standalone.Options{Budget: budget(0)}))
}

// budget returns the maximum duration of a call by the ReadTimeout of its client, since
// callers of redis_rate expect that to bound it. A call within Headgate's own default
// would fail if it dials on a busy machine.
func budget(read time.Duration) time.Duration {
	if read <= 0 { // none
		return 5 * time.Second // go-redis's default
	}
	return min(max(read, standalone.DefaultBudget), time.Minute)
}

// newLimiter makes two limiters on one store. They share its circuits and its
// counts, and differ only in the deny cache.
func newLimiter(s backend.Store) *Limiter {
	some := []headgate.Policy{PerSecond(1).policy()} // each call brings its own numbers
	l, err := headgate.New(s, some, nil)
	if err != nil {
		return &Limiter{err: err}
	}
	exact, err := headgate.New(s, some, &headgate.Options{DenyCacheTTL: -1})
	return &Limiter{s, l, exact, err}
}

// Close ends the limiter and leaves the client open. A limiter that lives as long
// as its process needs no Close.
func (l Limiter) Close() error {
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

// Allow is AllowN with 1.
func (l Limiter) Allow(ctx context.Context, key string, limit Limit) (*Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN takes n units, all or none. With 0 it takes nothing and returns the
// numbers.
func (l Limiter) AllowN(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	by, err := l.by(l.limiter, limit)
	if err != nil {
		return nil, err
	}
	if n != 0 && n <= limit.Burst {
		d, err := by.AllowN(ctx, key, int64(n))
		return limit.answer(n, d, err)
	}
	d, err := peek(ctx, by, key, 0)
	r, err := limit.answer(0, d, err)
	if err == nil && n > limit.Burst {
		r.RetryAfter = limit.emission(n-limit.Burst) + r.ResetAfter
	}
	return r, err
}

// AllowAtMost takes what there is, up to n units. With 0 it takes nothing and
// returns the numbers.
func (l Limiter) AllowAtMost(ctx context.Context, key string, limit Limit, n int) (*Result, error) {
	if n <= 0 {
		return l.AllowN(ctx, key, limit, n)
	}
	by, err := l.by(l.exact, limit)
	if err != nil {
		return nil, err
	}
	d, err := by.AllowAtMost(ctx, key, int64(n))
	return limit.answer(int(d.Passed), d, err)
}

// Reset gives the key a full bucket.
func (l Limiter) Reset(ctx context.Context, key string) error {
	by, err := l.by(l.limiter, PerSecond(1))
	if err != nil {
		return err
	}
	return by.Reset(ctx, key)
}

// by returns the limiter with the call's numbers. It costs little beside a round
// trip, and a list of the limiters by their numbers would grow for ever.
func (l Limiter) by(on *headgate.Limiter, limit Limit) (*headgate.Limiter, error) {
	if l.err != nil {
		return nil, l.err
	}
	if on == nil {
		return nil, errZero
	}
	return on.With(limit.policy())
}

var errZero = &headgate.InvalidError{
	What: "limiter", Value: "a zero redisrate.Limiter", Want: "one that NewLimiter returned",
}

var errRing = &headgate.InvalidError{
	What: "client", Value: "a *redis.Ring", Want: "a *redis.Client, such as one of its GetShardClients, or a *redis.ClusterClient",
}

func peek(ctx context.Context, by *headgate.Limiter, key string, n int64) (headgate.Decision, error) {
	return by.Peek(ctx, headgate.Call{Key: key, Costs: []int64{n}})
}

// Limit is a token bucket's numbers. The zero Limit is out of range.
type Limit struct {
	Rate   int           // units per Period
	Burst  int           // units at once
	Period time.Duration // of Rate
}

// PerSecond is rate units per second, all of which may come at once.
func PerSecond(rate int) Limit { return Limit{Rate: rate, Burst: rate, Period: time.Second} }

// PerMinute is rate units per minute, all of which may come at once.
func PerMinute(rate int) Limit { return Limit{Rate: rate, Burst: rate, Period: time.Minute} }

// PerHour is rate units per hour, all of which may come at once.
func PerHour(rate int) Limit { return Limit{Rate: rate, Burst: rate, Period: time.Hour} }

// String returns the limit as "10 req/s (burst 10)".
func (l Limit) String() string {
	period := l.Period.String()
	switch l.Period {
	case time.Second:
		period = "s"
	case time.Minute:
		period = "m"
	case time.Hour:
		period = "h"
	}
	return fmt.Sprintf("%d req/%s (burst %d)", l.Rate, period, l.Burst)
}

// IsZero reports whether l is the zero Limit.
func (l Limit) IsZero() bool { return l == Limit{} }

// policy fails closed, so that what no store decided becomes an error. Token
// buckets of one name share a count whatever their numbers are, as redis_rate's
// do under one key.
func (l Limit) policy() headgate.Policy {
	return headgate.Policy{
		Name:      "redis_rate",
		Algorithm: algo.TokenBucket(algo.Per(int64(l.Rate), l.Period), int64(l.Burst)),
		OnFailure: headgate.FailClosed,
	}
}

// emission is how long n units take to come, 146 years at most.
func (l Limit) emission(n int) time.Duration {
	return time.Duration(min(float64(l.Period)/float64(l.Rate)*float64(n), 1<<62))
}

// Result is the answer to a call.
type Result struct {
	// Limit is the limit that the call was decided by.
	Limit Limit
	// Allowed is the number of units that were taken; 0 is a denial.
	Allowed int
	// Remaining is the number of units that would pass now.
	Remaining int
	// RetryAfter is the time until the call would pass; -1 where it passed.
	RetryAfter time.Duration
	// ResetAfter is the time until the bucket is full.
	ResetAfter time.Duration
}

// answer makes of a decision to take n units what redis_rate answers. What no
// store decided is an error.
func (l Limit) answer(n int, d headgate.Decision, err error) (*Result, error) {
	if err == nil {
		err = d.Err
	}
	if err != nil {
		return nil, err
	}
	r := &Result{Limit: l, Remaining: int(d.Remaining), RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	if d.Allowed {
		r.Allowed, r.RetryAfter = n, -1
	}
	return r, nil
}
