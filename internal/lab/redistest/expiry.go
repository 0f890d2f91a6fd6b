package redistest

import (
	"context"
	"testing"
)

// NoImmortals fails the test for each key that never expires. A limiter that
// writes such keys fills the server, one client at a time.
func (s *Server) NoImmortals(t testing.TB) {
	t.Helper()
	// One script rather than a round trip per key. In a cluster it may read keys of
	// all slots, since Redis lets scripts without a shebang do so.
	keys, err := s.Client(t).Eval(context.Background(), `
		local found = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do
			if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
		end
		return found`, nil).StringSlice()
	check(t, err)
	for _, key := range keys {
		t.Errorf("key %q has no TTL", key)
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
