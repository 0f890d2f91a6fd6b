package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Takeover makes the replica primary at once and without asking anybody, also
// when the old primary is dead; what that one had not passed on is lost. It
// returns when the replica calls itself primary. The others learn it by and by.
func (c *Cluster) Takeover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica, "TAKEOVER")
}

// Failover has the replica change places with its living primary, in good
// order: nothing is lost. It returns when the replica calls itself primary.
func (c *Cluster) Failover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica)
}

func (c *Cluster) promote(t testing.TB, replica *Server, how ...any) {
	t.Helper()
	n := c.of(replica)
	n.do(t, append([]any{"CLUSTER", "FAILOVER"}, how...)...)
	await(t, func() error {
		v, err := n.view()
		if err == nil && !v.self().has("master") {
			err = fmt.Errorf("%s is still a replica", n.Addr())
		}
		return err
	})
}

// Promoted waits until another node than was serves the slot as its primary,
// and returns when that was first seen: at most some 5 ms late on an idle
// machine. It asks the nodes themselves, not what the others think of them.
func (c *Cluster) Promoted(t testing.TB, slot int, was *Server) time.Time {
	t.Helper()
	var seen time.Time
	await(t, func() error {
		for _, n := range c.living() {
			if n.Server != was && n.serves(slot) {
				seen = time.Now()
				return nil
			}
		}
		return fmt.Errorf("nobody but %s serves slot %d", was.Addr(), slot)
	})
	return seen
}

// serves also asks for the state: a node that has just become primary may still
// refuse with CLUSTERDOWN.
func (n *node) serves(slot int) bool {
	ctx := context.Background()
	pipe := n.admin.Pipeline()
	nodes, state := pipe.ClusterNodes(ctx), pipe.ClusterInfo(ctx)
	_, err := pipe.Exec(ctx)
	return err == nil && parseView(nodes.Val()).self().owns(slot) && field(state.Val(), "cluster_state") == "ok"
}
