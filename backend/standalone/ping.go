package standalone

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/inspect"
	"github.com/redis/go-redis/v9"
)

// MinRedisVersion is the lowest version of Redis that the store works with.
const MinRedisVersion = inspect.MinRedisVersion

// Ping checks that the server is reachable, new enough, a primary, and no member of a cluster. It
// checks that its user has each right that the scripts need, SCRIPT LOAD too. A missing right is
// a *backend.RightError. Ping warns where the server may evict counts, and where the round trip
// takes over a quarter of the budget. It also warns where a script over two slots is refused, and
// where your client lacks one of the three options of Client. It goes from the cause to the
// symptom: what the server is, the rights, a trial request. It ends within ten budgets or 5 s,
// whichever is more.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.shared.Closed.Load() {
		return nil, backend.ErrClosed
	}
	if err := backend.CheckContext(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspect.Patience(s.set.Budget))
	defer cancel()
	n := s.inspected()
	warnings, err = n.Ping(ctx, s, s.server.PastCircuit(nil), inspect.PingKey)
	if err != nil {
		return warnings, err
	}
	split, err := n.Split(ctx)
	return slices.Concat(warnings, split, s.advice), err
}

// advice returns a warning if a client of the user's lacks an option that a limiter wants.
func advice(c Client) (warnings []string) {
	user, ok := c.(*redis.Client)
	if !ok {
		return nil
	}
	var lacks []string
	o := user.Options()
	if o.MaxRetries > 0 { // go-redis makes a 0 of -1
		lacks = append(lacks, "MaxRetries: -1")
	}
	if o.DialerRetries > 1 {
		lacks = append(lacks, "DialerRetries: 1")
	}
	if !o.ContextTimeoutEnabled {
		lacks = append(lacks, "ContextTimeoutEnabled: true")
	}
	//mutant:options-advised
	if lacks == nil {
		return nil
	}
	return []string{"the client lacks " + strings.Join(lacks, ", ") + ": its own commands wait longer in an outage"}
}

// inspected is the server as its operator sees it.
func (s *Store) inspected() inspect.Node {
	return inspect.Node{Client: s.server.Client(), Name: s.server.Node, Prefix: s.set.Prefix, Budget: s.set.Budget}
}
