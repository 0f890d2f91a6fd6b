package denial

import (
	"context"
	"time"
)

// due reports whether one caller is to refresh the denial. That is in the last quarter of the
// time for which it holds, where the store denies for longer. So a flood on a spent key
// asks about once per second. Package shard refreshes the denials of spread keys.
func (e *entry) due(now, ttl time.Duration) bool {
	//mutant:due-lasts
	return e.Ends > e.Sent+ttl && e.group.Policies[0].Shards < 2 && now >= e.Sent+ttl*3/4
}

// held is how long a denied call waits for the caller that refreshes the denial.
// The cached denial still holds then. Without the wait, a flood that is answered
// from memory takes the processor from that caller until its budget is spent.
const held = 10 * time.Millisecond

// wait waits until the caller that refreshes the denial has its answer.
func (e *entry) wait(ctx context.Context) {
	select {
	//mutant:wait-for-refresh
	case <-e.refreshed:
	//mutant:wait-bounded
	case <-time.After(held):
	//mutant:wait-ends-with-caller
	case <-ctx.Done():
	}
}
