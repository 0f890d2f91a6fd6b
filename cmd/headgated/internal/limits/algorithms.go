package limits

import (
	"fmt"
	"maps"
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

// Period returns the length of a unit, 0 if it is none.
func Period(u Unit) time.Duration { return periods[u] }

// buckets are those of a bucketed-window.
const buckets = 10

// algorithmOf makes an algorithm of a limit per unit.
type algorithmOf func(limit int64, u Unit) (algo.Algorithm, error)

// ofLimit checks the numbers, so that the error names the line.
func ofLimit(make func(algo.Limit) algo.Algorithm) algorithmOf {
	return func(limit int64, u Unit) (algo.Algorithm, error) {
		period, ok := periods[u]
		if !ok {
			return algo.Algorithm{}, fmt.Errorf("invalid unit %d", u)
		}
		a := make(algo.Per(limit, period))
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
}

func (w words) algorithm(unset algorithmOf) (algorithmOf, error) {
	if w.word == "" {
		return unset, nil
	}
	if a := algorithms[w.word]; a != nil {
		return a, nil
	}
	return nil, w.wrong(slices.Collect(maps.Keys(algorithms))...)
}
