package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// BeginMove opens a slot towards another primary and leaves it open: its
// present owner answers ASK for keys that it lacks, and TRYAGAIN for commands
// whose keys lie on both nodes. The two nodes keep the state of the move.
func (c *Cluster) BeginMove(t testing.TB, slot int, to *Server) {
	t.Helper()
	from, dest := c.owner(t, slot), c.of(to)
	do(t, dest.admin, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id) // first, as ASK sends clients there
	do(t, from.admin, "CLUSTER", "SETSLOT", slot, "MIGRATING", dest.id)
}

// MoveKeys moves up to n keys of an open slot and returns how many, zero when
// none remains.
func (c *Cluster) MoveKeys(t testing.TB, slot, n int) int {
	t.Helper()
	from, to := c.owner(t, slot), c.importer(t, slot)
	keys, err := from.admin.ClusterGetKeysInSlot(context.Background(), slot, n).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) == 0 {
		return 0
	}
	args := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	do(t, from.admin, args...)
	return len(keys)
}

// EndMove moves the remaining keys, since the old owner refuses to give up a
// slot that has some, gives the slot to the new owner, and waits until all
// nodes agree.
func (c *Cluster) EndMove(t testing.TB, slot int) {
	t.Helper()
	c.assign(t, slot)
	c.Settle(t)
}

// Move moves whole slots, one after the other, and waits until all nodes agree
// on their new owner.
func (c *Cluster) Move(t testing.TB, slots []int, to *Server) {
	t.Helper()
	for _, slot := range slots {
		c.BeginMove(t, slot, to)
		c.assign(t, slot)
	}
	c.Settle(t)
}

// assign ends a move without waiting for all nodes to agree.
func (c *Cluster) assign(t testing.TB, slot int) {
	t.Helper()
	from, to := c.owner(t, slot), c.importer(t, slot)
	for c.MoveKeys(t, slot, 1000) > 0 {
	}
	// The new owner first, or no node would serve the slot for a moment.
	do(t, to.admin, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
	// A primary that loses its last slot becomes a replica, sometimes before this
	// command arrives.
	err := from.admin.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "NODE", to.id).Err()
	if err != nil && !strings.Contains(err.Error(), "only with masters") {
		t.Fatal(err)
	}
	for _, n := range c.primaries() {
		if n != to && n != from {
			do(t, n.admin, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
		}
	}
}

func (c *Cluster) owner(t testing.TB, slot int) *node {
	t.Helper()
	s := c.Primary(slot)
	if s == nil {
		t.Fatalf("redistest: no majority agrees on the owner of slot %d", slot)
	}
	return c.of(s)
}

// importer is the new owner of an open slot. It asks the importing side, since
// a replica that takes over from the old owner does not inherit the move.
func (c *Cluster) importer(t testing.TB, slot int) *node {
	t.Helper()
	for _, n := range c.living() {
		if v, err := n.view(); err == nil && v.self().importing(slot) {
			return n
		}
	}
	t.Fatalf("redistest: slot %d is not open", slot)
	return nil
}

// primaries are the living nodes that are primaries in their own view.
func (c *Cluster) primaries() []*node {
	return slices.DeleteFunc(c.living(), func(n *node) bool {
		v, err := n.view()
		return err != nil || !v.self().has("master")
	})
}

// Takeover makes the replica primary at once and without a vote, also when the
// old primary is dead. Writes that were not yet replicated are lost. It returns
// when the replica reports itself primary. The other nodes follow later.
func (c *Cluster) Takeover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica, "TAKEOVER")
}

// Failover exchanges the roles of the replica and its living primary without
// losing a write. It returns when the replica reports itself primary.
func (c *Cluster) Failover(t testing.TB, replica *Server) {
	t.Helper()
	c.promote(t, replica)
}

func (c *Cluster) promote(t testing.TB, replica *Server, how ...any) {
	t.Helper()
	n := c.of(replica)
	do(t, n.admin, append([]any{"CLUSTER", "FAILOVER"}, how...)...)
	await(t, func() error {
		v, err := n.view()
		if err == nil && !v.self().has("master") {
			err = fmt.Errorf("%s is still a replica", n.Addr())
		}
		return err
	})
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
