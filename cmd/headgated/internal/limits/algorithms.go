package limits

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// policyName is the name of every rule's policy, so that a count belongs only to its
// key, algorithm and period. Rules that move within a file, and overrides, keep their
// counts.
const policyName = "rls"

// periods are the lengths of the protocol's units, those of envoyproxy/ratelimit.
var periods = map[Unit]time.Duration{
	rls.RateLimitResponse_RateLimit_SECOND: time.Second,
	rls.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	rls.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	rls.RateLimitResponse_RateLimit_DAY:    24 * time.Hour,
	rls.RateLimitResponse_RateLimit_WEEK:   7 * 24 * time.Hour,
	rls.RateLimitResponse_RateLimit_MONTH:  30 * 24 * time.Hour,
	rls.RateLimitResponse_RateLimit_YEAR:   365 * 24 * time.Hour,
}

// lengthOf returns the length of a number of units. One that no algorithm has is longer than
// all that one has.
func lengthOf(u Unit, times uint32) time.Duration {
	if period := periods[u]; period == 0 || time.Duration(times) <= math.MaxInt64/period {
		return period * time.Duration(times)
	}
	return math.MaxInt64
}

// buckets are those of a bucketed-window.
const buckets = 10

// algorithmOf makes the algorithm of a rule that has its limit and period.
type algorithmOf func(*Rule, civil) (algo.Algorithm, error)

// some is Max, and 1 of a limit of 0, which no algorithm has.
func (r *Rule) some() int64 { return max(r.Max(), 1) }

// ofLimit checks the numbers, so that the error names the line.
func ofLimit(make func(algo.Limit) algo.Algorithm) algorithmOf {
	return func(r *Rule, _ civil) (algo.Algorithm, error) {
		a := make(algo.Per(r.some(), r.Period))
		return a, a.Check()
	}
}

var algorithms = map[string]algorithmOf{
	"fixed-window":    ofLimit(algo.FixedWindow),
	"sliding-window":  ofLimit(algo.SlidingWindow),
	"bucketed-window": ofLimit(func(l algo.Limit) algo.Algorithm { return algo.BucketedWindow(l, buckets) }),
	"sliding-log":     ofLimit(algo.SlidingLog),
	"compact-log":     ofLimit(algo.CompactLog),
	"token-bucket":    ofLimit(func(l algo.Limit) algo.Algorithm { return algo.TokenBucket(l, l.Events) }),
	calendar:          ofCalendar,
}

// algorithm returns the name of an algorithm.
func (w words) algorithm(unset string) (string, error) {
	if w.word == "" {
		return unset, nil
	}
	if algorithms[w.word] != nil {
		return w.word, nil
	}
	return "", w.wrong(slices.Collect(maps.Keys(algorithms))...)
}
