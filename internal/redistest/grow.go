package redistest

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// Grow adds a primary without slots to the cluster, and returns when all nodes
// agree that it is a member. It is killed when the test ends.
func (c *Cluster) Grow(t testing.TB) *Server {
	t.Helper()
	added := join(t, c.args)
	for _, n := range c.living() {
		added.do(t, "CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(n.port))
	}
	c.mu.Lock()
	c.mu.nodes = append(slices.Clone(c.mu.nodes), added)
	c.mu.Unlock()
	c.Settle(t)
	return added.Server
}

// Forget takes a node without slots out of the cluster: the others forget the
// node, and the node forgets them. Its process lives on, alone. A primary that
// has given its last slot away may have become a replica by then.
func (c *Cluster) Forget(t testing.TB, s *Server) {
	t.Helper()
	gone := c.of(s)
	c.mu.Lock()
	c.mu.nodes = slices.DeleteFunc(slices.Clone(c.mu.nodes), func(n *node) bool { return n == gone })
	c.mu.Unlock()
	for _, n := range c.living() {
		n.do(t, "CLUSTER", "FORGET", gone.id)
	}
	if s.living() {
		if err := gone.admin.ClusterResetSoft(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.Settle(t)
}
