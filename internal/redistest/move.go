package redistest

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// BeginMove opens a slot towards another primary and leaves it open: its
// present owner answers ASK for keys that it lacks, TRYAGAIN for commands whose
// keys are apart. Where the slot goes to is kept by the two nodes, not here.
func (c *Cluster) BeginMove(t testing.TB, slot int, to *Server) {
	t.Helper()
	from, dest := c.owner(t, slot), c.of(to)
	dest.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id) // first, as ASK sends clients there
	from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", dest.id)
}

// MoveKeys moves up to n keys of an open slot and returns how many, zero when
// none is left.
func (c *Cluster) MoveKeys(t testing.TB, slot, n int) int {
	t.Helper()
	from, to := c.owner(t, slot), c.bound(t, slot)
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
	from.do(t, args...)
	return len(keys)
}

// EndMove moves the keys that are left, since the old owner would refuse to let
// the slot go, gives the slot to the new one, and waits until all know it.
func (c *Cluster) EndMove(t testing.TB, slot int) {
	t.Helper()
	c.assign(t, slot)
	c.Settle(t)
}

// Move moves whole slots, one after the other, and waits until all nodes know
// their new owner.
func (c *Cluster) Move(t testing.TB, slots []int, to *Server) {
	t.Helper()
	for _, slot := range slots {
		c.BeginMove(t, slot, to)
		c.assign(t, slot)
	}
	c.Settle(t)
}

// assign ends a move without waiting for all to know it.
func (c *Cluster) assign(t testing.TB, slot int) {
	t.Helper()
	from, to := c.owner(t, slot), c.bound(t, slot)
	for c.MoveKeys(t, slot, 1000) > 0 {
	}
	// The new owner first: if the old one let go before, nobody would serve.
	to.do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
	// A primary that has lost its last slot becomes a replica, sometimes before
	// it is told.
	err := from.admin.Do(context.Background(), "CLUSTER", "SETSLOT", slot, "NODE", to.id).Err()
	if err != nil && !strings.Contains(err.Error(), "only with masters") {
		t.Fatal(err)
	}
	for _, n := range c.primaries() {
		if n != to && n != from {
			n.do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
		}
	}
}

func (c *Cluster) owner(t testing.TB, slot int) *node {
	t.Helper()
	s := c.Primary(slot)
	if s == nil {
		t.Fatalf("redistest: no majority knows who serves slot %d", slot)
	}
	return c.of(s)
}

// bound is where an open slot goes to. The new owner is asked, not the old: a
// replica that takes over from that one in the middle knows of no move.
func (c *Cluster) bound(t testing.TB, slot int) *node {
	t.Helper()
	for _, n := range c.living() {
		if v, err := n.view(); err == nil && slices.Contains(v.self().moving, slot) {
			return n
		}
	}
	t.Fatalf("redistest: slot %d is not open", slot)
	return nil
}

// primaries are the living nodes that call themselves so.
func (c *Cluster) primaries() []*node {
	return slices.DeleteFunc(c.living(), func(n *node) bool {
		v, err := n.view()
		return err != nil || !v.self().has("master")
	})
}
