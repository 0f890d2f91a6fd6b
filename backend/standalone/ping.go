package standalone

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/redis/go-redis/v9"
)

// Oldest is the lowest Redis version that the store works with: the oldest
// that its tests run on.
const Oldest = "7.0"

// Ping asks whether the server is fit to serve: reachable, new enough, a
// primary, no member of a cluster, and able to run the script with this
// user's rights. It warns where the server may evict counts, and where the
// round trip takes a good part of the budget.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.closed.Load() {
		return nil, backend.ErrClosed
	}
	info, err := s.info(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: info: %w", backend.ErrUnavailable, err)
	}
	if err := fit(info); err != nil {
		return nil, err
	}
	if w := evicts(info); w != "" {
		warnings = append(warnings, w)
	}
	if err := s.probe(ctx); err != nil {
		return warnings, err
	}
	return s.timed(ctx, warnings)
}

func (s *Store) info(ctx context.Context) (map[string]string, error) {
	cmd := redis.NewStringCmd(ctx, "info")
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for _, line := range strings.Split(cmd.Val(), "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok {
			fields[k] = v
		}
	}
	return fields, nil
}

func fit(info map[string]string) error {
	if v := info["redis_version"]; older(v, Oldest) {
		return fmt.Errorf("%w: version %q, want at least %s", backend.ErrServerTooOld, v, Oldest)
	}
	if info["cluster_enabled"] == "1" {
		return &backend.InvalidError{What: "server", Value: "a member of a Redis Cluster", Want: "a server of its own"}
	}
	if role := info["role"]; role != "master" {
		return fmt.Errorf("%w: the server's role is %q, want a primary", backend.ErrUnavailable, role)
	}
	return nil
}

// older compares the first two numbers of dotted versions. What is no
// version is older than any.
func older(v, than string) bool {
	a, b := numbers(v), numbers(than)
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}

func numbers(v string) (n [2]int) {
	for i, s := range strings.SplitN(v, ".", 3) {
		if i < len(n) {
			n[i], _ = strconv.Atoi(s)
		}
	}
	return n
}

// evicts words the danger of a server that throws keys out when its memory
// is full: a key that is gone is a fresh quota.
func evicts(info map[string]string) string {
	p := info["maxmemory_policy"]
	if info["maxmemory"] == "0" || p == "noeviction" || p == "" {
		return ""
	}
	return fmt.Sprintf("maxmemory-policy is %s: an evicted key is a fresh quota; noeviction refuses instead, and the failure mode applies", p)
}

// probe runs the script once as a call would, with a policy that lies in a
// hash and one that lies in a sorted set: so that a right that is missing is
// found now. What it stores is gone within seconds.
func (s *Store) probe(ctx context.Context) error {
	tick := algo.Per(algo.MaxLogLimit, algo.MinPeriod)
	_, err := s.Do(ctx, backend.Request{Op: backend.Take, Group: backend.Group{
		Key:  "headgate-ping",
		Cost: 1,
		Policies: []backend.Policy{
			{Name: "ping", Algorithm: algo.FixedWindow(tick), OnFailure: backend.FailClosed},
			{Name: "ping-log", Algorithm: algo.SlidingLog(tick), OnFailure: backend.FailClosed},
		},
	}, Last: true})
	return err
}

// timed warns where the median of a few round trips takes over a quarter of
// the budget: then a slow moment is enough to spend it.
func (s *Store) timed(ctx context.Context, warnings []string) ([]string, error) {
	var trips [5]time.Duration
	for i := range trips {
		begin := time.Now()
		if err := s.client.Process(ctx, redis.NewStatusCmd(ctx, "ping")); err != nil {
			return warnings, fmt.Errorf("%w: ping: %w", backend.ErrUnavailable, err)
		}
		trips[i] = time.Since(begin)
	}
	slices.Sort(trips[:])
	if m := trips[len(trips)/2]; m > s.budget/4 {
		warnings = append(warnings, fmt.Sprintf("a round trip takes %v of a budget of %v", m, s.budget))
	}
	return warnings, nil
}
