package cluster_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// command sends one command over a connection of its own: a move of hundreds of
// slots must not keep hundreds of clients until the test ends.
func command(s *redistest.Server, args ...any) *redis.Cmd {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	return c.Do(context.Background(), args...)
}

func id(t *testing.T, s *redistest.Server) string {
	t.Helper()
	id, err := command(s, "CLUSTER", "MYID").Text()
	require.NoError(t, err)
	return id
}

// migration is the move of a slot. Until it ends, the owner answers ASK for keys
// that it lacks, and TRYAGAIN for commands whose keys lie on both nodes.
type migration struct {
	c    *redistest.Cluster
	slot int
	to   *redistest.Server
}

func beginMove(t *testing.T, c *redistest.Cluster, slot int, to *redistest.Server) migration {
	t.Helper()
	from := c.Primary(slot)
	// The new owner first, as ASK sends clients there.
	require.NoError(t, command(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(t, from)).Err())
	require.NoError(t, command(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(t, to)).Err())
	return migration{c, slot, to}
}

// keys moves up to n keys and returns how many, zero when none remains.
func (m migration) keys(t *testing.T, n int) int {
	t.Helper()
	from := m.c.Primary(m.slot)
	keys, err := command(from, "CLUSTER", "GETKEYSINSLOT", m.slot, n).StringSlice()
	require.NoError(t, err)
	if len(keys) == 0 {
		return 0
	}
	host, port, err := net.SplitHostPort(m.to.Addr())
	require.NoError(t, err)
	args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	require.NoError(t, command(from, args...).Err())
	return len(keys)
}

// assign moves the remaining keys, since the old owner refuses to give up a slot
// that has some, and gives the slot to the new owner.
func (m migration) assign(t *testing.T) {
	t.Helper()
	for m.keys(t, 1000) > 0 {
	}
	// The new owner first, or no node would serve the slot for a moment.
	owner := id(t, m.to)
	require.NoError(t, command(m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", owner).Err())
	for _, n := range m.c.Nodes() {
		// Replicas refuse, as does a primary that became one with its last slot.
		err := command(n, "CLUSTER", "SETSLOT", m.slot, "NODE", owner).Err()
		if err != nil && !strings.Contains(err.Error(), "only with masters") {
			require.NoError(t, err)
		}
	}
}

// end ends the move and returns when all nodes agree on the owner.
func (m migration) end(t *testing.T) {
	t.Helper()
	m.assign(t)
	m.c.Settle(t)
}

// move moves whole slots, one after the other.
func move(t *testing.T, c *redistest.Cluster, slots []int, to *redistest.Server) {
	t.Helper()
	for _, slot := range slots {
		beginMove(t, c, slot, to).assign(t)
	}
	c.Settle(t)
}

// promote makes the replica primary and returns when it reports the role: in
// exchange with its living primary, or with "TAKEOVER" at once and without a
// vote, even if the primary is dead. The other nodes follow later.
func promote(t *testing.T, replica *redistest.Server, how ...any) {
	t.Helper()
	require.NoError(t, command(replica, append([]any{"CLUSTER", "FAILOVER"}, how...)...).Err())
	require.Eventually(t, func() bool {
		info, err := command(replica, "INFO", "replication").Text()
		return err == nil && strings.Contains(info, "role:master")
	}, time.Minute, 5*time.Millisecond)
}
