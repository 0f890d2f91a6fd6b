package standalone

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open returns a store on the server that url names, as
// "redis://user:password@host:6379/0" or "rediss://…" for TLS, with a client
// of its own that is set up for deciding: nothing is sent twice, nothing waits
// longer than the budget, and connections are made ahead of need. It does no
// I/O. Close closes the client.
func Open(url string, opts *Options) (*Store, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("headgate: redis url: %w", err)
	}
	budget := DefaultBudget
	if opts != nil && opts.Budget > 0 {
		budget = opts.Budget
	}
	client := redis.NewClient(tuned(o, budget))
	s := New(client, opts)
	s.owned = client
	return s, nil
}

// tuned sets a client up for a limiter. go-redis' defaults suit a cache: four
// tries a command, five dials a try, and a pool that is waited on for longer
// than a caller would.
func tuned(o *redis.Options, budget time.Duration) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = min(250*time.Millisecond, max(budget, 50*time.Millisecond))
	o.ReadTimeout = budget
	o.WriteTimeout = budget
	o.PoolTimeout = budget
	o.ContextTimeoutEnabled = true
	o.MinIdleConns = 2
	o.MaxConcurrentDials = 4 // every timed-out connection is closed: don't answer a stall with a dial storm
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}
