package wire

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Tuned sets a client up for a limiter. go-redis' defaults suit a cache: four
// tries a command, five dials a try, and a pool that is waited on for longer
// than a caller would.
func Tuned(o *redis.Options, budget time.Duration) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = min(250*time.Millisecond, max(budget, 50*time.Millisecond))
	o.ReadTimeout = budget
	o.WriteTimeout = budget
	o.PoolTimeout = budget / 2 // a wait for our own pool ends, and is told, before the budget does
	o.ContextTimeoutEnabled = true
	o.MinIdleConns = 2
	o.MaxConcurrentDials = 4 // every timed-out connection is closed: don't answer a stall with a dial storm
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Dialer == nil {
		o.Dialer = redis.NewDialer(o)
	}
	o.Dialer = quiet(o.Dialer)
	return o
}
