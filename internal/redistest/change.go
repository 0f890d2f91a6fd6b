package redistest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Grow adds a primary without slots to the cluster, and returns when all nodes
// agree that it is a member. It is killed when the test ends.
func (c *Cluster) Grow(t testing.TB) *Server {
	t.Helper()
	added := join(t, c.args)
	for _, n := range c.living() {
		do(t, added.admin, "CLUSTER", "MEET", "127.0.0.1", n.port)
	}
	c.mu.Lock()
	c.mu.nodes = append(slices.Clone(c.mu.nodes), added)
	c.mu.Unlock()
	c.Settle(t)
	return added.Server
}

// Forget takes a node without slots out of the cluster: the others forget the
// node, and the node forgets them. Its process runs on, alone. A primary that
// has given away its last slot may have become a replica by then.
func (c *Cluster) Forget(t testing.TB, s *Server) {
	t.Helper()
	gone := c.of(s)
	c.mu.Lock()
	c.mu.nodes = slices.DeleteFunc(slices.Clone(c.mu.nodes), func(n *node) bool { return n == gone })
	c.mu.Unlock()
	for _, n := range c.living() {
		do(t, n.admin, "CLUSTER", "FORGET", gone.id)
	}
	if s.living() {
		do(t, gone.admin, "CLUSTER", "RESET", "SOFT")
	}
	c.Settle(t)
}

// Promoted waits until a node other than was serves the slot as its primary. It
// returns when that was first seen: at most some 5 ms late on an idle machine.
// It asks each node for its own role, which the others learn later.
func (c *Cluster) Promoted(t testing.TB, slot int, was *Server) time.Time {
	t.Helper()
	var seen time.Time
	await(t, func() error {
		for _, n := range c.living() {
			if n.Server == was {
				continue
			}
			if v, err := n.well(); err == nil && v.self().owns(slot) {
				seen = time.Now()
				return nil
			}
		}
		return fmt.Errorf("no node but %s serves slot %d", was.Addr(), slot)
	})
	return seen
}
