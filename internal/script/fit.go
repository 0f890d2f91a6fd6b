package script

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

// Oldest is the lowest Redis version that the script works with: the oldest
// that its tests run on.
const Oldest = "7.0"

// Info is a server's INFO.
type Info map[string]string

// ReadInfo asks a server for its INFO.
func ReadInfo(ctx context.Context, c Client) (Info, error) {
	cmd := redis.NewStringCmd(ctx, "info")
	if err := c.Process(ctx, cmd); err != nil {
		return nil, fmt.Errorf("%w: info: %w", backend.ErrUnavailable, err)
	}
	fields := Info{}
	for _, line := range strings.Split(cmd.Val(), "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok {
			fields[k] = v
		}
	}
	return fields, nil
}

// Fit refuses a server that is too old or no primary.
func (i Info) Fit() error {
	if v := i["redis_version"]; older(v, Oldest) {
		return fmt.Errorf("%w: version %q, want at least %s", backend.ErrServerTooOld, v, Oldest)
	}
	if role := i["role"]; role != "master" {
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

// Evicts words the danger of a server that throws keys out when its memory
// is full: a key that is gone is a fresh quota.
func (i Info) Evicts() string {
	p := i["maxmemory_policy"]
	if i["maxmemory"] == "0" || p == "noeviction" || p == "" {
		return ""
	}
	return fmt.Sprintf("maxmemory-policy is %s: an evicted key is a fresh quota; noeviction refuses instead, and the failure mode applies", p)
}

// Probe is a request as a call makes it, with a policy that lies in a hash and
// one that lies in a sorted set: so that a right that is missing is found
// before a call meets it. What it stores is gone within seconds.
var Probe = backend.Request{Op: backend.Take, Last: true, Group: backend.Group{
	Key:  "headgate-ping",
	Cost: 1,
	Policies: []backend.Policy{
		{Name: "ping", Algorithm: algo.FixedWindow(algo.Per(algo.MaxLogLimit, algo.MinPeriod)), OnFailure: backend.FailClosed},
		{Name: "ping-log", Algorithm: algo.SlidingLog(algo.Per(algo.MaxLogLimit, algo.MinPeriod)), OnFailure: backend.FailClosed},
	},
}}

// Slow words a round trip that takes, in the median of a few, over a quarter
// of the budget: then a slow moment is enough to spend it.
func Slow(ctx context.Context, c Client, budget time.Duration) (warning string, err error) {
	var trips [5]time.Duration
	for i := range trips {
		begin := time.Now()
		if err := c.Process(ctx, redis.NewStatusCmd(ctx, "ping")); err != nil {
			return "", fmt.Errorf("%w: ping: %w", backend.ErrUnavailable, err)
		}
		trips[i] = time.Since(begin)
	}
	slices.Sort(trips[:])
	if m := trips[len(trips)/2]; m > budget/4 {
		return fmt.Sprintf("a round trip takes %v of a budget of %v", m, budget), nil
	}
	return "", nil
}

// Within returns f's answer, or ctx's error when that ends first: a client may
// block for longer than any context.
func Within(ctx context.Context, f func(context.Context) ([]string, error)) ([]string, error) {
	type answer struct {
		warnings []string
		err      error
	}
	done := make(chan answer, 1)
	go func() {
		w, err := f(ctx)
		done <- answer{w, err}
	}()
	select {
	case a := <-done:
		return a.warnings, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
	}
}
