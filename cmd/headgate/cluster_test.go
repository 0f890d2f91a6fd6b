package main

import (
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestMemberWithoutTheFlag: at one node of a cluster, a replica too, each command finds
// what all primaries have.
func TestMemberWithoutTheFlag(t *testing.T) {
	c, path := redistest.SharedCluster(t), write(t)
	store, err := cluster.Open(c.Addrs(), unhurried)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	p := place{store: store}
	members := [][]string{{"-redis", c.Primary(0).Addr()}, {"-redis", "redis://" + c.Replica(c.Primary(0)).Addr() + "/0"}}
	for _, member := range members {
		spread := p.limiter(t, "spread")
		take(t, spread, "hot", 40, 1)
		plain, err := headgate.New(store, []headgate.Policy{{Name: "plain", Algorithm: algo.FixedWindow(algo.PerDay(99)), OnFailure: headgate.FailClosed}}, nil)
		require.NoError(t, err)
		require.NoError(t, plain.Reset(t.Context(), "held"))
		for range 12 {
			_, d, err := plain.Reserve(t.Context(), headgate.Call{Key: "held"})
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		at := func(args ...string) []string { return append(args, member...) }
		peeked := decode[kept](t, 0, at("peek", "hot")...)
		require.Len(t, peeked.Counts, 3)
		for _, count := range peeked.Counts {
			require.Equal(t, 4, count.SubKeys, count.Policy)
			require.EqualValues(t, 40, count.Used, count.Policy)
		}
		of := []string{"-policies", path, "-plan", "spread"}
		require.EqualValues(t, 40, decode[looked](t, 0, at(append(of, "peek", "hot")...)...).Policies[0].Used)
		require.Equal(t, callerKey("hot"), decode[topped](t, 0, at(append(of, "top", "-every", "0")...)...).Fullest[0].Key)
		require.Len(t, decode[leased](t, 0, at("leases", "held")...).Leases, 12)
		require.Equal(t, exec(t, 0, "keys", "-cluster", c.Addrs()[0]), exec(t, 0, at("keys")...))
		require.Len(t, decode[pinged](t, 0, at("ping")...).Nodes, 3)
		require.Contains(t, exec(t, 0, at(append(of, "reset", "hot")...)...), "log: 40 units had been used")
		require.Contains(t, exec(t, 0, at("peek", "hot")...), "nothing is stored of hot")
		take(t, spread, "hot", 40, 1)
		require.Contains(t, exec(t, 0, at("reset", "hot")...), "hot was reset; counts deleted: 3\n")
	}
}

// TestServersThatAreNone: a Sentinel is no server, and what its primary is a member of
// wants to be looked at whole. A server that does not tell what it is, is not looked at.
func TestServersThatAreNone(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "HELLO", "")
	require.Empty(t, exec(t, 0, "keys", "-redis", server.Addr()), "INFO tells it")
	mute := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "INFO", "")
	require.Contains(t, exec(t, 1, "keys", "-redis", mute.Addr()), "unknown command 'info'")
	sentinel := server.Sentinel(t, "mymaster").Addr()
	require.Contains(t, exec(t, 1, "reset", "k", "-redis", sentinel), "want -sentinel with the name of its master")
	member := redistest.Start(t, "--cluster-enabled", "yes")
	sentinel = member.Sentinel(t, "mymaster").Addr()
	require.Contains(t, exec(t, 1, "reset", "k", "-redis", sentinel, "-sentinel", "mymaster"), "member of a Redis Cluster")
}
