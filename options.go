package headgate

import (
	"log/slog"
	"time"
)

// Options are a limiter's settings; nil is the same as the zero Options. What
// belongs to one policy is in the Policy, what belongs to a store, as its
// budget, in that store's Options.
type Options struct {
	// Instances is among how many processes FailLocal divides a limit, at
	// least 1. It is needed only where a policy fails local.
	Instances int
	// DenyCacheTTL is how long at most a denial of a store on Redis is remembered in
	// this process: calls of the same key and policies that cost no less are
	// denied from memory until it would pass, for 1 s at most. 0 is 1 s, a
	// negative value is off. What another process does to the key meanwhile,
	// a reset, a refund or a raised limit, shows only after that time; what
	// this process does shows at once. That a spread key is spent (Policy.Shards)
	// is remembered for up to 1 s whatever this says.
	DenyCacheTTL time.Duration
	// Observer receives an Event for each call of this limiter and of those that
	// With and OnFailure make of it, also for one that returns an error. While one
	// of them is in use it also receives each change of a circuit and each batch of
	// the store. It runs on the path of the call, outside of every lock: it must be
	// quick and safe for concurrent use. A panic in it is dropped. Nil is none.
	Observer func(Event)
	// Logger gets a line for each change of a circuit, never one for a call;
	// nil is no log.
	Logger *slog.Logger
}
