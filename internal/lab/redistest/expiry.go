package redistest

import (
	"context"
	"testing"
)

// NoImmortals fails the test for each key that never expires. A limiter that
// writes such keys fills the server, one client at a time.
func (s *Server) NoImmortals(t testing.TB) {
	t.Helper()
	// A script per thousands of keys: one of all would keep the server busy for seconds. In a
	// cluster it may read keys of all slots, since they are arguments.
	c, ctx := s.Client(t), context.Background()
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "", 10_000).Result()
		check(t, err)
		args := make([]any, len(keys))
		for i := range keys {
			args[i] = keys[i]
		}
		keys, err = c.Eval(ctx, `
			local found = {}
			for _, key in ipairs(ARGV) do
				if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
			end
			return found`, nil, args...).StringSlice()
		check(t, err)
		for _, key := range keys {
			t.Errorf("key %q has no TTL", key)
		}
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// NoImmortals is Server.NoImmortals on all living primaries. It must not run
// while a slot is open: a node hides a key that may lie on the other node.
func (c *Cluster) NoImmortals(t testing.TB) {
	t.Helper()
	for _, n := range c.living() {
		if v, err := n.view(); err == nil && v.self().has("master") {
			n.NoImmortals(t)
		}
	}
}
