package headgate

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/token"
)

// Options are a limiter's settings; nil is the same as the zero Options. Settings
// of one policy are in the Policy. Settings of a store, such as its budget, are in
// that store's Options.
type Options struct {
	// Instances is the number of processes among which FailLocal divides a limit, at
	// least 1. It is needed only where a policy fails local. A policy with fewer units
	// than instances is refused, since each process's share would be nothing.
	Instances int
	// Shards is the number of sub-keys, in as many slots, that a key is spread over: at most 1,024,
	// the limit and the burst. 0 and 1 are none. It is for a key that is too busy for one node of a
	// cluster. A spread key has no Reserve, no Record and no All: see docs/hotkeys.md. WithShards
	// makes a limiter with another number.
	Shards int
	// Borrow is the term for which a process may hold units of a key in advance: 10 ms to 1 s in
	// whole milliseconds. 0 is not at all. With it the process decides most calls of a busy key
	// without a round trip. Every policy must be one whose units can be lent, so none is an
	// InFlight. A store in memory lends none. See docs/fleets.md. WithBorrow makes a limiter with another term.
	Borrow time.Duration
	// DenyCacheTTL is the maximum age of a denial that is answered from memory, with a store on
	// Redis: at most 1 s. 0 is 1 s, and a negative value turns the cache off. A call that takes
	// or reserves, of one key or of several, is denied from memory until the denied one would
	// pass. Its key and policies must be those of the denial, and it must cost no less of the
	// policy that bound. AllowAtMost counts as a cost of one unit. For a higher cost than was
	// denied RetryAfter is that of its own cost with a TokenBucket. With other algorithms, of
	// keys with Shards, or while units are lent, it is a lower bound. Denials by slots of
	// InFlight are not kept, nor those of keys above 1,024 bytes. What another process does to
	// the key meanwhile, such as a reset, shows only after this time; what this process does
	// shows at once. Denials of spread keys (Shards) are kept for up to 1 s whatever the
	// value is.
	//
	// That is the lifetime while the store answers. While it does not, a denial stands in place
	// of the failure modes until the denied call would pass, for at most a minute. DenyCacheTTL
	// does not shorten that, but a negative value turns it off too.
	DenyCacheTTL time.Duration
	// Observer receives an Event for each call of this limiter and of those that
	// With and OnFailure make of it. A call that returns an error has one too. With,
	// OnFailure and Ping themselves make none, and a Resume only with an error. While
	// one of these limiters is in use it also receives each change of a circuit and each
	// batch of the store. So a function that two limiters of New on one store have receives
	// each of these twice. It runs on the path of the call, outside of every lock: it
	// must be quick and safe for concurrent use. A panic in it is dropped. Nil is none.
	Observer func(Event)
	// Near is the share of a limit that Event.Near is about, up to 1. It is compared with used /
	// limit as a float64: 0.55 of a limit of 100 is reached at 55 units. 0 is 0.8, and a
	// negative value is none. Of policies that borrow, EventNear has what calls used that were
	// decided from a loan, when a Borrow reports it. Limiters of one All should share an
	// Observer: only that of the limiter that binds receives the event.
	Near float64
	// TokenKey authenticates the tokens of reservations (HMAC-SHA256): at least 16
	// bytes, the same in all processes. Nil: whoever has a token's text can settle its
	// lease, and a reservation that no store decided has no token.
	TokenKey []byte
	// Logger gets a line per change of a circuit, and none per call; nil is no log. One
	// that opens is logged at WARN with the error of its last round trip, any other
	// change at INFO. A stored value that is not Headgate's is logged at WARN, one per second
	// at most. A store in memory whose new keys share a count is logged at WARN, one line per
	// class (Policy.Class) and minute. Middleware logs mistakes of the set-up here.
	Logger *slog.Logger
}

// defaultNear is the share of a limit that Event.Near is about by default.
const defaultNear = 0.8

func (o *Options) check() error {
	//mutant:deny-ttl-range
	if o.DenyCacheTTL > denial.Longest {
		return &InvalidError{What: "DenyCacheTTL", Value: o.DenyCacheTTL, Want: "at most 1s; 0 is that, below is off"}
	}
	if !(o.Near <= 1) { // NaN too
		return &InvalidError{What: "Near", Value: o.Near, Want: "at most 1; 0 is 0.8, below is off"}
	}
	if n := len(o.TokenKey); o.TokenKey != nil && n < token.MinKey {
		return &InvalidError{What: "TokenKey", Value: fmt.Sprint(n, " bytes"), Want: fmt.Sprintf("at least %d", token.MinKey)}
	}
	return nil
}
