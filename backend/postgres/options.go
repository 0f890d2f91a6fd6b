package postgres

import (
	"cmp"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Options are the settings of a Store. The zero Options, like nil, are the defaults.
type Options struct {
	// Name is the name of the server's circuit in events, errors and Limiter.Stats; "" is
	// host:port of the pool's first host.
	Name string
	// Budget is the maximum duration of a decision, 1 ms to 1 minute; 0 is 100 ms. After it the
	// policies' failure mode applies. A process that stops while it holds a key's row holds it
	// for at most half of that.
	Budget time.Duration
	// Schema is that of the tables; "headgate" where it is empty. Prefix begins their names.
	// Both are of a-z, 0-9 and _, at most 40 bytes together, and begin with no digit.
	Schema, Prefix string
	// Logged makes Migrate create tables that are written to the server's log. Counts then
	// survive a crash, and are on standbys. By default the tables are UNLOGGED: empty
	// after a crash or a failover, and cheaper. Options of a table that exists change nothing.
	Logged bool
}

// The defaults of Options.
const (
	DefaultBudget = 100 * time.Millisecond
	DefaultSchema = "headgate"
)

// defaults returns the options with the defaults in place of what was left out.
func (o *Options) defaults() Options {
	var own Options
	if o != nil {
		own = *o
	}
	own.Budget, own.Schema = cmp.Or(own.Budget, DefaultBudget), cmp.Or(own.Schema, DefaultSchema)
	return own
}

// check refuses options out of range.
func (o *Options) check() error {
	//mutant:postgres-budget
	if o.Budget < time.Millisecond || o.Budget > time.Minute {
		return &backend.InvalidError{What: "budget", Value: o.Budget, Want: "1ms to 1m, or 0 for the default"}
	}
	//mutant:postgres-names
	if !named(o.Schema) || o.Prefix != "" && !named(o.Prefix) || len(o.Schema)+len(o.Prefix) > 40 {
		return &backend.InvalidError{What: "schema and prefix", Value: o.Schema + "." + o.Prefix, Want: "a-z, 0-9 and _, no digit first, at most 40 bytes together"}
	}
	return nil
}

func named(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && c != '_' && (c < '0' || c > '9' || i == 0) {
			return false
		}
	}
	return s != ""
}
