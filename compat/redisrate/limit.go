package redisrate

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

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
