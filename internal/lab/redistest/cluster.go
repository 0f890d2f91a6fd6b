package redistest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const primaries, slots = 3, 16384

// Cluster is a Redis Cluster on ports of 127.0.0.1. It begins with three
// primaries and one replica of each. Safe for concurrent use: it keeps no roles
// and asks the nodes for them each time.
type Cluster struct {
	args  []string                // of every server
	nodes atomic.Pointer[[]*node] // members, dead ones included; Grow and Forget replace it
}

// node is a member: its server, its id, which outlives a restart, and a client
// for the tests' own commands. It never changes.
type node struct {
	*Server
	id    string
	admin *redis.Client
}

// StartCluster runs a cluster for this test only and kills it when the test
// ends. It takes some 2.5 s, since a fresh primary refuses to serve for 2 s.
// args override the defaults on all six servers, as in "--maxmemory", "1gb". Without a
// redis-server the test is skipped, or fails where CI=true.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c, nodes := &Cluster{args: slices.Concat(settings, args)}, []*node(nil)
	for range 2 * primaries {
		nodes = append(nodes, join(t, c.args))
	}
	c.nodes.Store(&nodes)
	form(t, nodes)
	c.Settle(t)
	return c
}

// Elections are arguments of StartCluster for a test in which replicas take over by
// themselves, as soon as the node timeout allows.
var Elections = []string{"--cluster-replica-no-failover", "no"}

// settings let replicas take over only when a test orders it. By themselves they would do so
// if a busy machine kept their primary from running for a second. A replica that takes over
// may have an old copy, and does not wait for more replicas to sync. The node timeout is
// short, since a longer one makes pings rarer, and clusters slower to form.
var settings = []string{
	"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
	"--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000", "--cluster-replica-no-failover", "yes",
	"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
}

// join starts a server in cluster mode that no other node knows yet.
func join(t testing.TB, args []string) *node {
	t.Helper()
	s := Start(t, args...)
	// One attempt: the callers repeat the query, or test that the node is gone.
	admin := s.Client(t, func(o *redis.Options) {
		o.MaxRetries, o.DialerRetries, o.DialTimeout = -1, 1, time.Second
	})
	id, err := admin.ClusterMyID(context.Background()).Result()
	check(t, err)
	return &node{s, id, admin}
}

// form makes a cluster of six nodes. Each meets each: gossip takes a
// second longer.
func form(t testing.TB, nodes []*node) {
	t.Helper()
	ctx := context.Background()
	for i, n := range nodes {
		pipe := n.admin.Pipeline()
		// Nodes with the same epoch would first have to resolve the conflict.
		pipe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < primaries {
			pipe.ClusterAddSlotsRange(ctx, i*slots/primaries, (i+1)*slots/primaries-1)
		}
		for _, peer := range nodes[:i] {
			pipe.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(peer.port))
		}
		_, err := pipe.Exec(ctx)
		check(t, err)
	}
	for i, replica := range nodes[primaries:] {
		// "Unknown node" until the two have met. They have a second for it. On a busy machine
		// that may be too short, so they meet again.
		met := time.Now()
		await(t, pause, func() error {
			err := replica.admin.ClusterReplicate(ctx, nodes[i].id).Err()
			if err != nil && time.Since(met) > 2*time.Second {
				met = time.Now()
				_ = replica.admin.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(nodes[i].port)).Err()
			}
			return err
		})
	}
}

func (c *Cluster) all() []*node { return *c.nodes.Load() }

// living returns the nodes that can answer: to ask a dead or stopped one takes
// a timeout.
func (c *Cluster) living() []*node {
	return slices.DeleteFunc(slices.Clone(c.all()), func(n *node) bool { return !n.living() })
}

// of panics for a server of elsewhere and for nil: a mistake of the test.
func (c *Cluster) of(s *Server) *node {
	for _, n := range c.all() {
		if n.Server == s {
			return n
		}
	}
	panic("redistest: the server is not in this cluster")
}

// Nodes are the servers, dead ones included, in fixed order: first three that began
// as primaries, then the replicas of these, then what Grow added.
func (c *Cluster) Nodes() (servers []*Server) {
	for _, n := range c.all() {
		servers = append(servers, n.Server)
	}
	return servers
}

// Addrs are the addresses of Nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, n := range c.all() {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Client is Server.Client for the whole cluster.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Primary is the server of the slot in the view of more than half of the living
// nodes. It may be dead, if they have not noticed. Nil without a majority.
func (c *Cluster) Primary(slot int) *Server {
	return c.majority(func(m member) bool { return m.owns(slot) })
}

// Replica is the replica of the given primary in the view of more than half of
// the living nodes. It is nil without a majority and without a replica. Of
// several replicas it is the one with the least id.
func (c *Cluster) Replica(of *Server) *Server {
	id := c.of(of).id
	return c.majority(func(m member) bool { return m.primary == id })
}

// majority returns the server that more than half of the living nodes take for this
// one. One node's view may be of before a failover.
func (c *Cluster) majority(is func(member) bool) *Server {
	votes, living := map[string]int{}, c.living()
	for _, n := range living {
		if v, err := n.view(); err == nil {
			votes[v.find(is).id]++
		}
	}
	for _, n := range c.all() {
		if 2*votes[n.id] > len(living) {
			return n.Server
		}
	}
	return nil
}

// Grow adds a primary without slots to the cluster, and returns when all nodes
// agree that it is a member. It is killed when the test ends.
func (c *Cluster) Grow(t testing.TB) *Server {
	t.Helper()
	added := join(t, c.args)
	for _, n := range c.living() {
		do(t, added.admin, "CLUSTER", "MEET", "127.0.0.1", n.port)
	}
	nodes := append(slices.Clone(c.all()), added)
	c.nodes.Store(&nodes)
	c.Settle(t)
	return added.Server
}

// Forget takes a node without slots out of the cluster: the others forget the
// node, and the node forgets them. Its process runs on, by itself. A primary that
// has given away its last slot may have become a replica by then.
func (c *Cluster) Forget(t testing.TB, s *Server) {
	t.Helper()
	gone := c.of(s)
	nodes := slices.DeleteFunc(slices.Clone(c.all()), func(n *node) bool { return n == gone })
	c.nodes.Store(&nodes)
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
	await(t, glance, func() error {
		for _, n := range c.living() {
			if v, err := n.well(); n.Server != was && err == nil && v.self().owns(slot) {
				seen = time.Now()
				return nil
			}
		}
		return fmt.Errorf("no node but %s serves slot %d", was.Addr(), slot)
	})
	return seen
}
