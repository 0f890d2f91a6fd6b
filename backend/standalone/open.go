package standalone

import (
	"fmt"

	"github.com/headgate-go/headgate/internal/script"
	"github.com/redis/go-redis/v9"
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
	client := redis.NewClient(script.Tuned(o, budget))
	s := New(client, opts)
	s.owned = client
	return s, nil
}
